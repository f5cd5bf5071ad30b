// Package pressure makes of what is measured of a service one score and one of five levels, by which callers are told to slow down and
// work of less worth is refused.
//
// A signal x is a ratio: 0 for nothing, 1 for as much as is wanted at the most, such as a wait over the wait aimed at. With weights w that
// add up to 1, and over those signals alone that there are,
//
//	score = Σ w·min(x, 1) / Σ w
//
// A signal that is absent, not a number or below 0 neither raises nor lowers the score, and is named. The score alone would let a level
// flap at its bound, so a Meter lets it fall only once the score has been below the level's bound by Margin for Samples samples in a row.
// It rises at once.
//
//	score from   0      0.5    0.7      0.85   0.95
//	level        NONE   LOW    MEDIUM   HIGH   CRITICAL
package pressure

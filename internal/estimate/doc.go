// Package estimate guesses what work will cost whose caller does not say, from what work of the same kind has cost before: the nine tenths
// quantile of the last Remembered costs of a tenant's kind of work, by nearest rank (R. Hyndman, Y. Fan, Sample quantiles in statistical packages,
// 1996, definition 1): of fewer than ten costs that is the greatest. A quantile, not a mean, because the two mistakes are not alike: what a
// reservation lacks is taken once it is known, when others have passed meanwhile, and what it did not need goes back.
//
// Before the first cost is known the guess is First. No guess is above the burst that it is given, the least on the work's way, for a limit would
// refuse more than that for good, and none is below one token, for nothing would pass unchecked (BerriAI/litellm#29191 and #35422).
//
// It exists beside package limiter and package producer because both guess alike. What it knows is that of one process, and ends with it.
package estimate

// Package forecast says how many jobs a queue is to be asked for in the next hour, from points of ten minutes, and by how much it would have been
// wrong in the last day.
//
// After R. J. Hyndman and G. Athanasopoulos, Forecasting: principles and practice, 3rd edition (https://otexts.com/fpp3): the seasonal naive method
// (section 5.2), of which two seasons are combined evenly (13.4), and on what it leaves Holt's linear trend, damped (8.2). With y the points, a day of
// D = 144 of them and a week of W = 7D:
//
//	S(t) = the mean of y(t-D) and y(t-W)          the one that is known, where one is; an earlier day's of up to 7 where neither is
//	r(t) = y(t) - S(t)                            what the season does not tell
//	ℓ(t) = (1-α)(ℓ(t-1) + φb(t-1)) + α r(t)       its level
//	b(t) = (1-β)φb(t-1) + β(ℓ(t) - ℓ(t-1))        its trend
//	ŷ(t+h) = max(0, S(t+h) + ℓ(t) + (φ + … + φ^h) b(t))
//
// A point that is not known leaves the level where the trend leads. α, β and φ are fixed, not fitted: with two days there is nothing to fit them on, and
// the error is that of points which no parameter has seen.
//
// The error (5.8, 5.10) is of each forecast of one to six points ahead that ends in the last day, made from what was known before it: the mean of its
// absolute values, and that over the mean of what came, for rates of nought have no percentage of their own. Beside it stands that of the seasonal
// naive method alone, y(t-D), on the same points.
package forecast

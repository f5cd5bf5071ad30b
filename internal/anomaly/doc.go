// Package anomaly finds rates that are not usual: of a tenant, a queue or the whole deployment, what was admitted and refused in a minute
// against the same name's hour before. It has no clock and no store, and changes nothing: who calls it may tell somebody.
//
// With x for the count of a minute, m for the median of the known counts of the History minutes before it, and MAD for the median of their
// distances from m (F. R. Hampel, The influence curve and its role in robust estimation, 1974),
//
//	d = max(1.4826·MAD, √max(m, 1), m/10)
//	z = (x − m) / d
//
// 1.4826·MAD is the standard deviation where counts are normal, and half of the hour may be anything at all without moving it: one surge
// does not hide the next. Of a steady rate MAD is 0 or nearly so, and any count would be an alarm. So there are two floors: √m, the
// deviation of a Poisson process whose median is m, and a tenth of m, because real load swings more than that process: below that a median
// that runs half an hour behind a daily wave would be told of a large queue each morning. What they cost is said plainly: nothing is a surge
// below 1.6·m, nor a silence above 0.4·m, and no rate of 36 a minute or less can fall silent, since √m is then less than 6.
//
//	surge          z >  6 and x > 10, two minutes in a row
//	silence        z < −6 and m > 10, two minutes in a row
//	refusal_surge  as surge, of what was refused
//
// A name is judged once MinHistory minutes of it are known. The minutes before the first in which it was counted are not: who comes anew is
// no surge. One that stays away for an hour is forgotten. When the deployment as a whole falls silent that is told, and not each of its
// tenants and queues.
package anomaly

// Package hyperloglog counts different names in 16 KiB, however many there are, with a standard error of 0.81 %: P. Flajolet, É. Fusy, O.
// Gandouet, F. Meunier, HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm, 2007, with the estimator of O. Ertl, New
// cardinality estimation algorithms for HyperLogLog sketches, 2017.
//
// It has the hash, the registers and the estimator of Redis (PFADD, PFCOUNT), so a process that keeps a Sketch knows of which names Redis has to
// be told: those that raise a register. Of a million in an hour these are some 60,000, and ever fewer.
package hyperloglog

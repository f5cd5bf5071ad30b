// Package gradient is the limit of concurrency that Netflix's concurrency-limits calls Gradient2Limit, with its defaults, by the rule of its
// documentation: https://github.com/Netflix/concurrency-limits. It exists since no library in Go that has it can be had.
//
// Each second the mean time that work took is compared with its long-term mean. The limit is multiplied by long ÷ short, which counts as a half at
// least and one at most, and four are added: so it falls while work takes longer than it did, and grows otherwise. A fifth of the change is made at
// a time, and none while less than half of the limit was in use.
package gradient

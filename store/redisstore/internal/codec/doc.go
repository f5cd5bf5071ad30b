// Package codec writes and reads the texts that scripts take, return and keep: numbers, records of jobs, paths and limits, verdicts,
// gates, breakers and who did what.
package codec

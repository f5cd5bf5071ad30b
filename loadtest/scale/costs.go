package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// costs are what one of a thing was measured to take, and what is assumed.
type costs struct {
	// Microseconds of Redis's core: a job from Enqueue to its end in batches and alone, and a check of four limits in batches.
	job, alone, check float64
	// Bytes to Redis and back on the network, of the same.
	jobNet, aloneNet, checkNet float64
	// Bytes in Redis: a waiting job, the id of one that has ended, a bucket.
	waiting, ended, bucket float64
	// busy is the part of a core that is planned for; replicas is how many each shard has.
	busy, replicas float64
	// Seconds: the work that waits, and for how long an ended id is kept.
	backlog, window float64
}

// costRow is a row of the table of costs: its name in code marks, and its value.
var costRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([0-9.]+) \\|")

// readCosts reads the table. Every cost must be there, once, above zero (replicas may be zero).
func readCosts(text string) (c costs, err error) {
	into := map[string]*float64{
		"job_us": &c.job, "alone_us": &c.alone, "check_us": &c.check,
		"job_net": &c.jobNet, "alone_net": &c.aloneNet, "check_net": &c.checkNet,
		"waiting": &c.waiting, "ended": &c.ended, "bucket": &c.bucket,
		"busy": &c.busy, "replicas": &c.replicas, "backlog": &c.backlog, "window": &c.window,
	}
	var bad []error
	for _, row := range costRow.FindAllStringSubmatch(text, -1) {
		to, ok := into[row[1]]
		if !ok {
			bad = append(bad, fmt.Errorf("%s is no cost, or stands there twice", row[1]))
			continue
		}
		delete(into, row[1])
		if *to, err = strconv.ParseFloat(row[2], 64); err != nil || *to == 0 && row[1] != "replicas" {
			bad = append(bad, fmt.Errorf("%s is %s, not a number above zero", row[1], row[2]))
		}
	}
	for name := range into {
		bad = append(bad, fmt.Errorf("%s is missing", name))
	}
	return c, errors.Join(bad...)
}

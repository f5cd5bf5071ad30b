package doctor

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// setting returns a setting of Redis; told is false where CONFIG is not allowed.
func (d *doctor) setting(ctx context.Context, name string) (value string, told bool) {
	values, err := d.client.ConfigGet(ctx, name).Result()
	if err != nil {
		return "", false
	}
	value, told = values[name]
	return value, told
}

// clockTolerance is how far two clocks may be apart before deadlines that producers reckon by their own are off.
const clockTolerance = time.Second

func (d *doctor) clock() {
	text := fmt.Sprintf("the clock of Redis is %s ahead of this machine's, give or take %s", d.ahead.Round(time.Millisecond), d.roundTrip.Round(10*time.Microsecond))
	if d.ahead < 0 {
		text = fmt.Sprintf("the clock of Redis is %s behind this machine's, give or take %s", -d.ahead.Round(time.Millisecond), d.roundTrip.Round(10*time.Microsecond))
	}
	if max(d.ahead, -d.ahead)-d.roundTrip/2 > clockTolerance {
		d.add("clock", HealthWarn, text+": deadlines and start times that are reckoned here are off by that", "run an NTP client on both machines")
		return
	}
	d.add("clock", HealthOK, text, "")
}

// partitionState looks at what Headgate keeps in a partition, beside a policy of the version in force in the first one. The memory
// of a job is a sample of the jobs hash.
func (d *doctor) partitionState(ctx context.Context, inForce int64) (partitionFacts, error) {
	p := d.partition
	pipe := d.client.Pipeline()
	state := redisconn.ReadState(ctx, pipe, p, "pv", "dw", "en", "eo", "accepted", "promoter", redisconn.DataField, redisconn.LayoutField, "nd", "stranded", "rt")
	live := pipe.HLen(ctx, p.Jobs())
	sample := pipe.MemoryUsage(ctx, p.Jobs(), memorySample)
	due := pipe.ZRangeWithScores(ctx, p.Due(), 0, 0)
	later := pipe.ZRangeWithScores(ctx, p.Later(), 0, 0)
	workers := pipe.HLen(ctx, p.Workers())
	if _, err := pipe.Exec(ctx); err != nil && state.Err() != nil {
		return partitionFacts{}, fmt.Errorf("read state: %w", redisconn.Unread(err))
	}
	facts := partitionFacts{layout: redisconn.TextAt(state.Val(), 7), version: redisconn.Whole(redisconn.TextAt(state.Val(), 0)), live: live.Val(), bytes: sample.Val()}
	facts.recorded = redisconn.TextAt(state.Val(), 10) != ""
	d.data(redisconn.TextAt(state.Val(), 6))
	numbers := make([]int64, 4)
	for i := range numbers {
		numbers[i] = redisconn.Whole(redisconn.TextAt(state.Val(), i))
	}
	d.policy(ctx, facts.version, max(inForce, facts.version))
	d.dedup(time.Duration(numbers[1])*time.Microsecond, numbers[2]+numbers[3])
	vitals, err := d.part.Vitals(ctx)
	if err != nil {
		return partitionFacts{}, err
	}
	d.bounds(vitals.Bounds)
	d.workers(workers.Val(), live.Val()-redisconn.Whole(redisconn.TextAt(state.Val(), 8)))
	counters, err := d.part.Counters(ctx)
	if err != nil {
		return partitionFacts{}, err
	}
	d.conservation(&counters, redisconn.Whole(redisconn.TextAt(state.Val(), 9)))
	d.types(counters.Unknown)
	first := math.Inf(1)
	for _, z := range append(due.Val(), later.Val()...) {
		first = math.Min(first, z.Score)
	}
	d.timers(first, redisconn.TextAt(state.Val(), 5))
	return facts, nil
}

func (d *doctor) data(text string) {
	stored, _ := strconv.Atoi(text)
	if err := redisconn.CheckData(stored); err != nil {
		d.add("data", HealthFail, err.Error(), "run the newer release")
		return
	}
	d.add("data", HealthOK, fmt.Sprintf("version %d", max(stored, 1)), "")
}

// memorySample is how many fields of the jobs hash MEMORY USAGE looks at.
const memorySample = 50

func (d *doctor) policy(ctx context.Context, version, inForce int64) {
	exists, err := d.client.Exists(ctx, d.partition.Policy()).Result()
	switch {
	case err == nil && version > 0 && exists == 0:
		d.add("policy", HealthFail, fmt.Sprintf("version %d is in force and its text is gone: no producer can read it", version), "headgate policy set FILE")
	case version < inForce:
		d.add("policy", HealthWarn, fmt.Sprintf("version %d, the first partition has %d", version, inForce), "start a worker, a scheduler or a producer: each brings it up, unless jobs wait in a class that has gone")
	case version == 0:
		d.add("policy", HealthOK, "version 0, the built-in one", "")
	default:
		d.add("policy", HealthOK, fmt.Sprintf("version %d", version), "")
	}
}

// The window of ended ids by default, as in fragments/ended.lua, and the parts of its cap at which it is short.
const (
	defaultWindow = 30 * time.Second
	dedupWarn     = 0.5
	dedupFull     = 0.9
	// slowRate is below what a deployment of some size ends in a second.
	slowRate = 1000
)

// dedup reckons the rate that the window allows: ids are kept in two generations of a window each.
func (d *doctor) dedup(window time.Duration, ended int64) {
	if window <= 0 {
		window = defaultWindow
	}
	limit := float64(d.part.Conn().EndedCap)
	rate := limit / (2 * window.Seconds())
	text := fmt.Sprintf("ended ids are remembered for %s, at most %d of them: %.0f jobs/s for ever; %d are kept now", window, d.part.Conn().EndedCap, rate, ended)
	const do = "make the policy's dedup window shorter, or EndedCap of every producer's redisstore.Config larger (some 80 bytes an id)"
	switch part := float64(ended) / limit; {
	case part > dedupFull:
		d.add("dedup", HealthFail, text+": new jobs are about to be refused", do)
	case part > dedupWarn || rate < slowRate:
		d.add("dedup", HealthWarn, text+"; above that jobs are refused", do)
	default:
		d.add("dedup", HealthOK, text, "")
	}
}

// conservation looks for jobs whose records are gone (law L4).
func (d *doctor) conservation(counters *store.Counters, stranded int64) {
	gone := counters.Left[recordGone] + counters.Died[recordGone]
	switch n, known := counters.Unaccounted(); {
	case !known:
		d.add("conservation", HealthWarn, "not known: a full Redis does not count in one moment", "raise maxmemory, or let workers catch up, or purge dead letters")
	case n < 0:
		d.add("conservation", HealthFail, fmt.Sprintf("%d jobs more have a record, or have left, than were accepted", -n),
			"half of a transaction was carried out: Redis read a journal anew that a crash had torn. docs/OPERATIONS.md, HeadgateJobsLost")
	case n > 0:
		d.add("conservation", HealthFail, fmt.Sprintf("%d of %d accepted jobs have no record, and did not leave", n, counters.Accepted),
			"find out who deletes fields of "+d.partition.Jobs()+", or which slots were lost; each is counted as "+recordGone+" at its turn")
	case stranded > 0:
		d.add("conservation", HealthFail, fmt.Sprintf("%d jobs were in the hands of workers that ended, and nobody's since", stranded),
			"this Redis hides what a consumer holds: run Redis 7.0 or newer")
	case gone > 0:
		d.add("conservation", HealthWarn, fmt.Sprintf("every accepted job is accounted for, %d of them as %s", gone, recordGone),
			"find out who deleted fields of "+d.partition.Jobs()+", or which slots were lost")
	default:
		d.add("conservation", HealthOK, fmt.Sprintf("each of %d accepted jobs is there, or left for a reason that was counted", counters.Accepted), "")
	}
}

// recordGone is the reason of jobs whose records were gone at their turn, in job_gone of fragments/letter.lua and at workers.
const recordGone = "record_gone"

func (d *doctor) workers(n, live int64) {
	if n == 0 && live > 0 {
		d.add("workers", HealthWarn, fmt.Sprintf("none is registered, and %d jobs live that are no dead letters", live), "start one, or look at the queues: headgate queue list")
		return
	}
	d.add("workers", HealthOK, fmt.Sprintf("%d registered", n), "")
}

// unknownRecently is for how long after the last one jobs of unknown types are told of: longer than one of them stays away.
const unknownRecently = 10 * time.Minute

// types looks for jobs that come to workers without a handler for them.
func (d *doctor) types(unknown map[string]store.Unknown) {
	var told []string
	for _, queue := range slices.Sorted(maps.Keys(unknown)) {
		if u := unknown[queue]; d.now.Sub(u.Last) < unknownRecently {
			told = append(told, fmt.Sprintf("queue %s, %d times in all, the last of type %s %s ago", queue, u.Count, u.Type, d.now.Sub(u.Last).Round(time.Second)))
		}
	}
	if len(told) == 0 {
		d.add("types", HealthOK, "no job has come to a worker lately that does not know its type", "")
		return
	}
	d.add("types", HealthWarn, "workers hand jobs back whose type they do not know: "+strings.Join(told[:min(len(told), 10)], "; "),
		"start a worker with a handler for that type, or cancel the jobs")
}

// timerTolerance is how late a timer may be before nobody seems to run them.
const timerTolerance = 5 * time.Second

func (d *doctor) timers(first float64, promoter string) {
	if math.IsInf(first, 1) {
		d.add("timers", HealthOK, "none is set", "")
		return
	}
	late := d.now.Sub(time.UnixMicro(int64(first))).Round(time.Second)
	if late <= timerTolerance {
		d.add("timers", HealthOK, "none is late", "")
		return
	}
	text := fmt.Sprintf("the first is %s late: retries, deadlines and leases of lost workers wait", late)
	if end, owner, ok := strings.Cut(promoter, "|"); ok {
		if at := redisconn.Whole(end); at != 0 {
			text += fmt.Sprintf("; the last scheduler was %s, %s ago", owner, d.now.Sub(time.UnixMicro(at)).Round(time.Second))
		}
	}
	d.add("timers", HealthFail, text, "start a worker or a scheduler: each runs them")
}

// size writes a number of bytes for people.
func size(bytes int64) string {
	const unit = 1 << 10
	value, names := float64(bytes), []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	for value >= unit && len(names) > 1 {
		value, names = value/unit, names[1:]
	}
	return strconv.FormatFloat(value, 'f', min(1, 5-len(names)), 64) + " " + names[0]
}

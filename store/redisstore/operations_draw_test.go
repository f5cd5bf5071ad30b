package redisstore_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

func (w *walk) drawLimits() {
	for i := range w.limits {
		for level := range w.limits[i] {
			w.limits[i][level] = w.drawLimit()
		}
		if w.typed.floors[i] = [2]int{}; w.number("floored", 0, 2) == 0 {
			from, least := w.number("from", 1, 100), w.number("least", 1, 100)
			w.typed.floors[i] = [2]int{from, least}
			for level := admission.LevelQueue; level <= admission.LevelPriority; level++ {
				if limit := &w.limits[i][level]; !limit.Disabled {
					*limit = limit.WithFloor(from, least)
				}
			}
		}
	}
	for i := range w.typed.limits {
		w.typed.limits[i] = w.drawLimit()
	}
	for i := range w.typed.own {
		w.typed.own[i] = w.drawOwn()
	}
	global, percent := w.limits[0][admission.LevelGlobal], pick(w, "kept", []int{0, 0, 25, 60})
	kept := global.Keeping(percent)
	if global.Window.IsZero() && w.number("lent", 0, 1) > 0 {
		kept = kept.Lending()
	}
	if others, _ := kept.Others(); others.Tokens == 0 || others.Burst == 0 {
		kept = global
	}
	w.bypass = [2]int{pick(w, "reserve", []int{0, 20, 100}), pick(w, "share", []int{0, 0, 10, 50, 100})}
	if !global.Window.IsZero() {
		w.bypass[0] = 0
	}
	for i := range w.limits { // one global limit a call, of which a part is kept from some
		w.limits[i][admission.LevelGlobal] = pick(w, "kept from", []admission.Limit{kept, kept, global})
	}
}

func (w *walk) drawLimit() admission.Limit {
	switch {
	case (w.theme == "algorithms" || w.theme == "bypass") && w.number("limited", 0, 2) > 0:
	case w.theme != "" && w.theme != "limits" || w.number("limited", 0, 2) > 0:
		return admission.Limit{Disabled: true}
	}
	switch w.number("algorithm", 0, 5) {
	case 3:
		return w.drawWindow()
	case 4, 5:
		return w.drawSliding()
	}
	return admission.Limit{
		Tokens: admission.Tokens(w.number("tokens", 0, 40)), Burst: admission.Tokens(w.number("burst", 1, 60)),
		Per: pick(w, "per", []time.Duration{time.Second, 700 * time.Millisecond, time.Minute, 24 * time.Hour}),
	}
}

// drawSliding draws a limit of sliding windows, of which a walk sees some pass.
func (w *walk) drawSliding() admission.Limit {
	sliding := pick(w, "sliding", []func(admission.Tokens, string) (admission.Limit, error){admission.SlidingWindow, admission.SlidingLog})
	l, err := sliding(admission.Tokens(w.number("tokens", 1, 60)), pick(w, "window", []string{"1s", "5s", "30s", "24h"}))
	check(w.tb, err)
	return l
}

// drawWindow draws a limit of fixed windows that end soon.
func (w *walk) drawWindow() admission.Limit {
	window, zone := pick(w, "window", []string{"5s", "30s", "24h", "72h", "month"}), ""
	if window == "24h" || window == "72h" || window == "month" {
		zone = pick(w, "zone", []string{"", "Europe/Berlin", "Pacific/Chatham"})
	}
	location, err := time.LoadLocation(zone)
	check(w.tb, err)
	anchor := time.UnixMicro(w.now).In(location).Add(time.Duration(w.number("ends in", 0, 2)) * time.Minute)
	l, err := admission.FixedWindow(admission.Tokens(w.number("tokens", 1, 60)), window, anchor.Format("15:04"), zone)
	check(w.tb, err)
	return l
}

// drawDispatch draws what a record says of dispatches: seldom nothing, or that there is no rate.
func (w *walk) drawDispatch() string {
	switch w.number("own rate", 0, 5) {
	case 0:
		return ""
	case 1:
		return `"dispatch":{"enabled":false},`
	}
	return fmt.Sprintf(`"dispatch":{"tokens":%d,"per":%q,"burst":%d},`, w.number("own rate's tokens", 1, 9), pick(w, "own rate per", []string{"1s", "7s", "1m"}), w.number("own rate's burst", 1, 3))
}

// drawBounds draws what a record says of depth, over all queues and in single ones, and of caps in these.
func (w *walk) drawBounds() (text string) {
	bound := func(o store.Overflow) string {
		return fmt.Sprintf(`"overflow":{"policy":%q,"max_jobs":%d,"max_bytes":%d,"max_spilled":%d,"low_water_percent":%d}`, o.Policy, o.MaxJobs, o.MaxBytes, o.MaxSpilled, o.LowWater)
	}
	if all := w.drawOverflow(); all.Policy != "" && w.theme != "spills" && w.number("bounds of a record over all", 0, 2) == 0 {
		if all.Policy != store.NoBound {
			all = store.Overflow{Policy: store.Reject, MaxJobs: all.MaxJobs, MaxBytes: all.MaxBytes}
		}
		text += bound(all) + ","
	}
	var in []string
	for _, queue := range []string{"mail", "hook", "overflow"} {
		var says []string
		if w.gates == "all" && (w.theme == "queue caps" || w.number("own cap in a queue", 0, 3) == 0) && w.number("cap in a queue", 0, 2) > 0 {
			says = append(says, fmt.Sprintf("%q:%d", "max_running", w.number("max running there", 1, 3)))
		}
		if o := w.drawOverflow(); o.Policy != "" && w.number("bounds of a record", 0, 2) == 0 {
			says = append(says, bound(o))
		}
		if len(says) > 0 {
			in = append(in, fmt.Sprintf("%q:{%s}", queue, strings.Join(says, ",")))
		}
	}
	if len(in) > 0 {
		text += `"queues":{` + strings.Join(in, ",") + "},"
	}
	return text
}

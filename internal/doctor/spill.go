package doctor

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/store"
)

// unmovedFor is for how long nobody may have moved spilled jobs before they seem forgotten.
const unmovedFor = 30 * time.Second

// spill tells of spilled jobs whose bodies are in a second Redis, and compares both where that is known here.
func (d *doctor) spill(s store.SpillState) {
	if s.Away+s.Copies == 0 && s.Moved.IsZero() && s.Trouble == "" {
		d.add("spill", HealthOK, "no spilled job has its body in a second Redis", "")
		return
	}
	text := fmt.Sprintf("%d spilled jobs have their bodies in the second Redis", s.Away)
	switch idle := d.now.Sub(s.Moved); {
	case s.Held >= 0 && s.Held < s.Away:
		d.add("spill", HealthFail, fmt.Sprintf("%s, which holds %d", text, s.Held), "bring the data of the second Redis back: a job whose body is not there leaves as "+recordGone+" at its turn")
	case s.Trouble != "":
		d.add("spill", HealthFail, text+", and none is moved: that Redis is "+troubles[s.Trouble], "look at the log of the workers that have redis.spill_url")
	case s.Away > 0 && idle > unmovedFor:
		d.add("spill", HealthFail, fmt.Sprintf("%s, and nobody has moved any for %s", text, idle.Round(time.Second)), "start a worker that has redis.spill_url")
	case s.Held > s.Away+s.Copies:
		d.add("spill", HealthWarn, fmt.Sprintf("%s, which holds %d and %d that are to be dropped: the rest is nobody's", text, s.Held, s.Copies),
			"find out whether this Redis has lost writes, or was brought back from a copy: what is nobody's costs memory there and nothing else")
	default:
		d.add("spill", HealthOK, text, "")
	}
}

// troubles says the words that stand in the state.
var troubles = map[string]string{
	"away": "away", "refused": "full, or refuses for another reason", "foreign": "that of another deployment", "lost": "without the data that it had",
}

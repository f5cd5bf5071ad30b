package system

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/loadtest/internal/load"
)

// idMark begins the ids of jobs; the number follows.
const idMark = "j"

func idOf(number int) string { return idMark + strconv.Itoa(number) }

// errStranger means that a job is not of this run; every run has keys of its own.
var errStranger = errors.New("the job is not of this run")

// numberOf returns the number of a job by its id.
func numberOf(id string, plan *load.Plan) (int, error) {
	number, err := strconv.Atoi(strings.TrimPrefix(id, idMark))
	if err != nil || number < 0 || number >= len(plan.Arrivals) {
		return 0, fmt.Errorf("%w: %q", errStranger, id)
	}
	return number, nil
}

// jobType is the type of every job.
const jobType = "load"

// maxWork is how much longer than its work a handler may take before its ctx ends.
const maxWork = time.Minute

package worker

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"
)

func TestEachPartLogsWithItsLogger(t *testing.T) {
	t.Parallel()
	var all, timers, breakers bytes.Buffer
	config := Config{Logger: zerolog.New(&all)}
	check := func(why string, inAll, inTimers, inBreakers int) {
		t.Helper()
		c := config.withDefaults()
		c.Scheduler.Logger.Info().Msg("")
		c.BreakerLogger.Info().Msg("")
		for buffer, want := range map[*bytes.Buffer]int{&all: inAll, &timers: inTimers, &breakers: inBreakers} {
			if got := bytes.Count(buffer.Bytes(), []byte("\n")); got != want {
				t.Errorf("%s: %d lines where %d should be", why, got, want)
			}
			buffer.Reset()
		}
	}
	check("without loggers of their own", 2, 0, 0)
	config.SchedulerLogger, config.BreakerLogger = new(zerolog.New(&timers)), new(zerolog.New(&breakers))
	check("with loggers of their own", 0, 1, 1)
}

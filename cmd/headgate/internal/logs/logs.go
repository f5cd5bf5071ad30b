package logs

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// Component is a part of the product that logs.
type Component string

// The components.
const (
	Worker    Component = "worker"
	Scheduler Component = "scheduler"
	Producer  Component = "producer"
	Admin     Component = "admin"
	Breaker   Component = "breaker"
)

// Components lists them all.
var Components = [...]Component{Worker, Scheduler, Producer, Admin, Breaker}

// Levels are the names of levels, the quietest first.
var Levels = []string{"off", "error", "warn", "info", "debug"}

// The formats.
const (
	FormatJSON    = "json"
	FormatConsole = "console"
)

// Config says what is written, and how. Its levels are of Levels.
type Config struct {
	// Level is that of every component that Own does not name; empty means info.
	Level string
	// Own are the levels of single components; an empty one counts as none.
	Own map[Component]string
	// Format is FormatJSON or FormatConsole; empty means JSON. It does not change while the process runs.
	Format string
	// Burst is how many lines of one component and level are written each second; of those beyond, each Thereafter-th
	// is, or none for 0. A Burst of 0 writes all. Errors are always written.
	Burst, Thereafter int
}

// Logs holds the loggers. Its methods may be called from several goroutines.
type Logs struct {
	base    zerolog.Logger
	valves  map[Component]*valve // not changed after New
	dropped atomic.Int64
}

// New returns loggers that write to one writer, which several goroutines may use.
func New(to io.Writer, config Config) *Logs {
	if config.Format == FormatConsole {
		file, ok := to.(*os.File)
		to = zerolog.ConsoleWriter{Out: to, NoColor: !ok || !term.IsTerminal(int(file.Fd())), TimeFormat: time.RFC3339}
	}
	l := &Logs{base: zerolog.New(to).With().Timestamp().Logger(), valves: make(map[Component]*valve, len(Components))}
	for _, component := range Components {
		l.valves[component] = &valve{dropped: &l.dropped}
	}
	l.Apply(config)
	return l
}

// Logger returns the logger of one of Components.
func (l *Logs) Logger(component Component) zerolog.Logger {
	return l.base.Sample(l.valves[component]).With().Str("component", string(component)).Logger()
}

// Apply puts the levels and the sampling of a Config in force, for all loggers that were given out as well.
func (l *Logs) Apply(config Config) {
	for component, v := range l.valves {
		v.setting.Store(newSetting(config, component))
	}
}

// Dropped returns how many lines sampling has left out.
func (l *Logs) Dropped() int64 { return l.dropped.Load() }

package logs

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// valve decides which lines of a component are written. It is a zerolog.Sampler because zerolog asks that before it makes
// an event, and because the level of a Logger itself cannot be changed.
type valve struct {
	setting atomic.Pointer[setting]
	dropped *atomic.Int64
}

type setting struct {
	level   zerolog.Level
	sampler zerolog.Sampler
}

func newSetting(config Config, component Component) *setting {
	s := &setting{level: levelOf(cmp.Or(config.Own[component], config.Level, "info")), sampler: zerolog.LevelSampler{}}
	if config.Burst > 0 {
		s.sampler = zerolog.LevelSampler{DebugSampler: newBurst(config), InfoSampler: newBurst(config), WarnSampler: newBurst(config)}
	}
	return s
}

func newBurst(config Config) zerolog.Sampler {
	return &zerolog.BurstSampler{
		Burst: uint32(config.Burst), Period: time.Second,
		NextSampler: &zerolog.BasicSampler{N: uint32(config.Thereafter)},
	}
}

// levelOf reads one of Levels.
func levelOf(name string) zerolog.Level {
	level, err := zerolog.ParseLevel(name)
	if err != nil {
		return zerolog.Disabled // "off"
	}
	return level
}

// Sample says whether a line of a level is written.
func (v *valve) Sample(level zerolog.Level) bool {
	s := v.setting.Load()
	if level < s.level {
		return false
	}
	if s.sampler.Sample(level) {
		return true
	}
	v.dropped.Add(1)
	return false
}

package headgate

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"

	"github.com/rs/zerolog"
)

// logTo returns the logger of the rooms, whose lines go to a slog.Logger; that of nil is silent.
func logTo(log *slog.Logger) zerolog.Logger {
	if log == nil {
		return zerolog.Nop()
	}
	return zerolog.New(lines{log})
}

// lines passes on what is written to it, a JSON object a line.
type lines struct{ to *slog.Logger }

func (l lines) Write(line []byte) (int, error) { return l.WriteLevel(zerolog.NoLevel, line) }

// WriteLevel passes on one line.
func (l lines) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	to := slog.LevelInfo
	switch {
	case level <= zerolog.DebugLevel:
		to = slog.LevelDebug
	case level == zerolog.WarnLevel:
		to = slog.LevelWarn
	case level >= zerolog.ErrorLevel && level != zerolog.NoLevel:
		to = slog.LevelError
	}
	ctx := context.Background() //nolint:forbidigo // A line of zerolog has no ctx.
	if !l.to.Enabled(ctx, to) {
		return len(line), nil
	}
	fields := map[string]any{}
	if err := json.Unmarshal(line, &fields); err != nil {
		return 0, err
	}
	text, _ := fields[zerolog.MessageFieldName].(string)
	delete(fields, zerolog.MessageFieldName)
	delete(fields, zerolog.LevelFieldName)
	attrs := make([]slog.Attr, 0, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		attrs = append(attrs, slog.Any(name, fields[name]))
	}
	l.to.LogAttrs(ctx, to, text, attrs...)
	return len(line), nil
}

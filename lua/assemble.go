package lua

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed *.lua fragments/*.lua
var sources embed.FS

// includeMark begins a line that names a fragment.
const includeMark = "-- @include "

// assemble returns a script's text with each fragment inlined once, where it is first named.
func assemble(name string) (string, error) {
	var text strings.Builder
	done := map[string]bool{}
	if err := inline(&text, name+".lua", done, nil); err != nil {
		return "", fmt.Errorf("assemble script %s: %w", name, err)
	}
	return text.String(), nil
}

func inline(text *strings.Builder, path string, done map[string]bool, within []string) error {
	if slices.Contains(within, path) {
		return fmt.Errorf("include cycle %s -> %s", strings.Join(within, " -> "), path)
	}
	source, err := sources.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for line := range strings.Lines(string(source)) {
		fragment, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), includeMark)
		if !found {
			text.WriteString(line)
			continue
		}
		inner := "fragments/" + fragment + ".lua"
		if done[inner] {
			continue
		}
		if err := inline(text, inner, done, append(within, path)); err != nil {
			return err
		}
		done[inner] = true
	}
	return nil
}

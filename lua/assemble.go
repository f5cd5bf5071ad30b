package lua

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

//go:embed scripts
var sources embed.FS

// paths has the source of each script by its name.
var paths = func() map[string]string {
	all := map[string]string{}
	found, err := fs.Glob(sources, "scripts/*/*.lua")
	if err != nil {
		panic(err) // The pattern is a constant.
	}
	for _, file := range found {
		if path.Dir(file) != fragments {
			all[strings.TrimSuffix(path.Base(file), ".lua")] = file
		}
	}
	return all
}()

// fragments is the folder of what scripts are assembled from.
const fragments = "scripts/fragments"

// includeMark begins a line that names a fragment.
const includeMark = "-- @include "

// piece is a part of a script: a fragment, or lines of the script itself.
type piece struct {
	fragment bool
	text     string
	words    map[string]bool
}

// assemble returns a script's text with each fragment inlined once, where it is first named.
func assemble(name string) (string, error) {
	pieces, err := collect(nil, paths[name], map[string]bool{}, nil)
	if err != nil {
		return "", fmt.Errorf("assemble script %s: %w", name, err)
	}
	for i := range pieces {
		pieces[i].words = words(pieces[i].text)
	}
	var text strings.Builder
	for i, p := range pieces {
		if p.fragment {
			text.WriteString(enclose(p.text, append(pieces[:i:i], pieces[i+1:]...)))
		} else {
			text.WriteString(p.text)
		}
	}
	return text.String(), nil
}

// words returns every word of a text outside of comments.
func words(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "--")
		for word := range strings.FieldsFuncSeq(code, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			all[word] = true
		}
	}
	return all
}

// collect appends the pieces of a source, those of its fragments before its own.
func collect(to []piece, file string, done map[string]bool, within []string) ([]piece, error) {
	if slices.Contains(within, file) {
		return nil, fmt.Errorf("include cycle %s -> %s", strings.Join(within, " -> "), file)
	}
	source, err := sources.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	var own strings.Builder
	keep := func() {
		if own.Len() > 0 {
			to = append(to, piece{fragment: len(within) > 0, text: own.String()})
		}
		own.Reset()
	}
	for line := range strings.Lines(string(source)) {
		fragment, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), includeMark)
		if !found {
			own.WriteString(line)
			continue
		}
		keep()
		inner := path.Join(fragments, fragment+".lua")
		if done[inner] {
			continue
		}
		if to, err = collect(to, inner, done, append(within, file)); err != nil {
			return nil, err
		}
		done[inner] = true
	}
	keep()
	return to, nil
}

var (
	luaFunction = regexp.MustCompile(`(?m)^local function (\w+)\(`)
	luaVariable = regexp.MustCompile(`(?m)^local (\w+(?:, \w+)*)(?: = (.*)| --.*)?\n`)
)

// enclose puts a fragment into a block, of which the other pieces see only what they use: a function of Lua has 200 local
// variables at most, and a script is one.
func enclose(text string, others []piece) string {
	used := func(name string) bool {
		return slices.ContainsFunc(others, func(p piece) bool { return p.words[name] })
	}
	hidden := false
	var functions []string
	for _, found := range luaFunction.FindAllStringSubmatch(text, -1) {
		if name := found[1]; used(name) {
			functions = append(functions, name)
		} else {
			hidden = true
		}
	}
	variables := luaVariable.FindAllStringSubmatch(text, -1)
	needed := map[string]bool{} // by variables that others see
	var seen []string
	for _, found := range slices.Backward(variables) {
		if slices.ContainsFunc(strings.Split(found[1], ", "), func(name string) bool { return needed[name] || used(name) }) {
			seen = append(seen, found[0])
			maps.Copy(needed, words(found[2]))
		} else {
			hidden = true
		}
	}
	if !hidden {
		return text
	}
	var block strings.Builder
	for _, line := range slices.Backward(seen) {
		block.WriteString(line)
		text = strings.Replace(text, line, "", 1)
	}
	for _, name := range functions {
		text = strings.Replace(text, "local function "+name+"(", "function "+name+"(", 1)
	}
	for names := range slices.Chunk(functions, 6) {
		block.WriteString("local " + strings.Join(names, ", ") + "\n")
	}
	return block.String() + "do\n" + text + "end\n"
}

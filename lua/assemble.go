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
	"sync"
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

const (
	fragments = "scripts/fragments"   // The folder of what scripts share.
	prologue  = "scripts/library.lua" // What all of them begin with.

	// includeMark begins a line that names a fragment whose names are used.
	includeMark = "-- @include "

	// flagMark begins a line that gives a script a flag of Redis' functions: "allow-oom" for one that a full Redis is to run.
	flagMark = "-- @flag "
)

// source is a file, as what is assembled of it.
type source struct {
	name, text string
	includes   []string
	flags      []string
	defines    []string // The names of its outermost functions and variables.
	words      map[string]bool
	resets     bool // It has something to set when a call begins.
	script     bool // Nothing includes it.
}

var (
	luaFunction = regexp.MustCompile(`(?m)^local function (\w+)\(`)
	luaVariable = regexp.MustCompile(`(?m)^local (\w+(?:, \w+)*)(?: =| --|$)`)
)

// files has what was read of each file, by its path.
var files sync.Map

// read reads a file, once in a process.
func read(file string) (*source, error) {
	if known, ok := files.Load(file); ok {
		return known.(*source), nil //nolint:forcetypeassert // the last line stores no other
	}
	text, err := sources.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	s := &source{name: strings.TrimSuffix(path.Base(file), ".lua"), script: path.Dir(file) != fragments}
	var own strings.Builder
	for line := range strings.Lines(string(text)) {
		if fragment, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), includeMark); found {
			s.includes = append(s.includes, fragment)
		} else if flag, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), flagMark); found {
			s.flags = append(s.flags, flag)
		} else {
			own.WriteString(line)
		}
	}
	s.text, s.words = own.String(), words(own.String())
	s.resets = strings.Contains(s.text, "function reset."+s.name+"(")
	for _, found := range luaFunction.FindAllStringSubmatch(s.text, -1) {
		s.defines = append(s.defines, found[1])
	}
	for _, found := range luaVariable.FindAllStringSubmatch(s.text, -1) {
		s.defines = append(s.defines, strings.Split(found[1], ", ")...)
	}
	files.Store(file, s)
	return s, nil
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

// collect appends a file to those that are in order: what it includes before itself, each once.
func collect(to []*source, file string, within []string) ([]*source, error) {
	if slices.Contains(within, file) {
		return nil, fmt.Errorf("include cycle %s -> %s", strings.Join(within, " -> "), file)
	}
	name := strings.TrimSuffix(path.Base(file), ".lua")
	if path.Dir(file) == fragments && slices.ContainsFunc(to, func(s *source) bool { return !s.script && s.name == name }) {
		return to, nil
	}
	s, err := read(file)
	if err != nil {
		return nil, err
	}
	for _, fragment := range s.includes {
		if to, err = collect(to, path.Join(fragments, fragment+".lua"), append(within, file)); err != nil {
			return nil, err
		}
	}
	return append(to, s), nil
}

// enclose returns a file in a block, with the names that it uses of those before it, and puts its own where those after it find
// them: a function of Lua has 200 local variables at most.
func enclose(s *source, before []*source) string {
	var b strings.Builder
	b.WriteString("do -- " + s.name + "\n")
	var used []string
	for _, other := range before {
		if other.script {
			continue
		}
		for _, name := range other.defines {
			if s.words[name] && !slices.Contains(s.defines, name) && !slices.Contains(used, name) {
				used = append(used, name)
			}
		}
	}
	for some := range slices.Chunk(used, 8) {
		b.WriteString("local " + strings.Join(some, ", ") + " = shared." + strings.Join(some, ", shared.") + "\n")
	}
	b.WriteString(s.text)
	if s.script {
		return b.String() + "end\n"
	}
	for some := range slices.Chunk(s.defines, 8) {
		b.WriteString("shared." + strings.Join(some, ", shared.") + " = " + strings.Join(some, ", ") + "\n")
	}
	return b.String() + "end\n"
}

// begin returns the text of what a call of a script begins with, by the files that it is made of.
func begin(made []*source) string {
	var b strings.Builder
	b.WriteString("call_open(KEYS[1], ARGV)\n")
	for _, s := range made {
		if s.resets {
			b.WriteString("reset." + s.name + "()\n")
		}
	}
	return b.String()
}

// assemble returns the text of one script, for EVAL.
func assemble(name string) (string, error) {
	made, err := collect(nil, paths[name], nil)
	if err != nil {
		return "", fmt.Errorf("assemble script %s: %w", name, err)
	}
	text, err := modules(made)
	if err != nil {
		return "", fmt.Errorf("assemble script %s: %w", name, err)
	}
	return text + begin(made) + "return scripts." + name + "(KEYS, ARGV)\n", nil
}

// keyNames returns the names of keys that any file asks for by themselves.
var keyNames = sync.OnceValue(func() []string {
	found := map[string]bool{}
	err := fs.WalkDir(sources, "scripts", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := sources.ReadFile(file)
		for _, name := range keyName.FindAllSubmatch(text, -1) {
			found[string(name[1])] = true
		}
		return err //nolint:wrapcheck // it panics
	})
	if err != nil {
		panic(err) // The sources are in the binary.
	}
	return slices.Sorted(maps.Keys(found))
})

var keyName = regexp.MustCompile(`\bkeys\.([a-z]+)\b`)

// modules returns what all begin with, and files in their order.
func modules(made []*source) (string, error) {
	head, err := sources.ReadFile(prologue)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", prologue, err)
	}
	var text strings.Builder
	text.WriteString(strings.Replace(string(head), "local KEY_NAMES = {}", "local KEY_NAMES = { '"+strings.Join(keyNames(), "', '")+"' }", 1))
	for i, s := range made {
		text.WriteString(enclose(s, made[:i]))
	}
	return text.String(), nil
}

// functions returns the text of all scripts as a library of functions for FUNCTION LOAD, but for its first line; LIBRARY is its name
// there, and a script's function is LIBRARY_NAME. A preamble begins each. What they share is made in the first call, because Redis has
// no string library for a library that is being loaded.
func functions(preamble string) (string, error) {
	var all []*source
	var entries, registered strings.Builder
	for _, name := range Names() {
		own, err := collect(nil, paths[name], nil)
		if err != nil {
			return "", fmt.Errorf("assemble library: %w", err)
		}
		if all, err = collect(all, paths[name], nil); err != nil {
			return "", fmt.Errorf("assemble library: %w", err)
		}
		flags := ""
		if of := own[len(own)-1].flags; len(of) > 0 {
			flags = "flags = { '" + strings.Join(of, "', '") + "' }, "
		}
		fmt.Fprintf(&entries, "function entries.%s(KEYS, ARGV)\n%s%sreturn scripts.%s(KEYS, ARGV)\nend\n", name, preamble, begin(own), name)
		fmt.Fprintf(&registered, "register('%s', { %s})\n", name, flags)
	}
	text, err := modules(all)
	if err != nil {
		return "", fmt.Errorf("assemble library: %w", err)
	}
	return "local function make()\n" + lean(text) + "local entries = {}\n" + entries.String() + "return entries\nend\n" + registration + registered.String(), nil
}

// lean returns a text without the lines that are comments, and without indentation: Redis keeps the text of a library, and its replicas and
// snapshots have it too.
func lean(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimLeft(line, " \n"); !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// registration names the functions of a library, each of which makes it where no call has.
const registration = `local entries
local function register(name, of)
  of.function_name = LIBRARY .. '_' .. name
  function of.callback(KEYS, ARGV)
    entries = entries or make()
    return entries[name](KEYS, ARGV)
  end
  redis.register_function(of)
end
`

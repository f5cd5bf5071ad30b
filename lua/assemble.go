package lua

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
)

// sources are the scripts, and what puts them together: by all of that a library is named.
//
//go:embed scripts assemble.go library.go
var sources embed.FS

// contents is a hash of all sources. A process that finds its library in Redis needs no more than that of them: to put one together takes 30 ms.
var contents = sync.OnceValue(func() string {
	var all strings.Builder
	err := fs.WalkDir(sources, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := sources.ReadFile(file)
		fmt.Fprintf(&all, "%s %d\n%s", file, len(text), text)
		return err
	})
	if err != nil {
		panic(err) // The sources are in the binary.
	}
	return hash(all.String())
})

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

	// flagMark begins a line that gives a script a flag of Redis' functions: "allow-oom" for one that a full Redis is to run.
	flagMark = "-- @flag "

	// reliefMark is a line of a script that begins with a write that a full Redis allows, which frees the rest of it from the check
	// where it is run as a text. Only admit, which adds data, begins with one that a full Redis refuses, and finish with XACK, which
	// it allows.
	reliefMark = "-- @relief"
)

// source is a file, as what is assembled of it.
type source struct {
	name, text string
	flags      []string
	defines    []string // The names of its outermost functions and variables.
	uses       map[string]bool
	resets     bool // It has something to set when a call begins.
	relieved   bool
	script     bool // It is no fragment.
}

// parse reads the text of a file. Each process does, so no regular expression has a part in it: with them it took most of 40 ms.
func parse(file, text string) *source {
	s := &source{name: strings.TrimSuffix(path.Base(file), ".lua"), script: path.Dir(file) != fragments}
	var own strings.Builder
	for line := range strings.Lines(text) {
		mark := strings.TrimSuffix(line, "\n")
		if flag, found := strings.CutPrefix(mark, flagMark); found {
			s.flags = append(s.flags, flag)
		} else if mark == reliefMark {
			s.relieved = true
		} else {
			own.WriteString(line)
			s.defines = append(s.defines, defined(mark)...)
		}
	}
	s.text, s.uses = own.String(), names(text)
	s.resets = strings.Contains(s.text, "function reset."+s.name+"(")
	return s
}

// defined returns the names that a line of a file defines for all of it: of a function, or of variables.
func defined(line string) []string {
	rest, outermost := strings.CutPrefix(line, "local ")
	if !outermost {
		return nil
	}
	if function, is := strings.CutPrefix(rest, "function "); is {
		name, _, _ := strings.Cut(function, "(")
		return []string{name}
	}
	for _, end := range []string{" =", " --"} {
		rest, _, _ = strings.Cut(rest, end)
	}
	return strings.Split(rest, ", ")
}

// files has every file by its path.
var files = sync.OnceValue(func() map[string]*source {
	all := map[string]*source{}
	for _, pattern := range []string{"scripts/*/*.lua", fragments + "/*.lua"} {
		found, err := fs.Glob(sources, pattern)
		if err != nil {
			panic(err) // The pattern is a constant.
		}
		for _, file := range found {
			text, err := sources.ReadFile(file)
			if err != nil {
				panic(err) // The sources are in the binary.
			}
			all[file] = parse(file, string(text))
		}
	}
	return all
})

// homes has the file of each fragment by the names that it defines. No two define the same, and no other file has a variable of such a
// name (TestANameIsOfOneFile), so that a name alone says what it is.
var homes = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for file, s := range files() {
		if !s.script {
			for _, name := range s.defines {
				all[name] = file
			}
		}
	}
	return all
})

// needs has, by the path of a file, those of the fragments whose names it uses, in their order.
var needs = sync.OnceValue(func() map[string][]string {
	all := map[string][]string{}
	for file, s := range files() {
		used := map[string]bool{}
		for name := range s.uses {
			if home := homes()[name]; home != "" && home != file {
				used[home] = true
			}
		}
		all[file] = slices.Sorted(maps.Keys(used))
	}
	return all
})

// names returns every name that a text uses: its words outside of comments and strings, but for fields and what it assigns to.
func names(text string) map[string]bool {
	all := map[string]bool{}
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case strings.HasPrefix(text[i:], "--"):
			if i = i + strings.IndexByte(text[i:], '\n'); text[i] != '\n' {
				return all
			}
		case c == '\'' || c == '"':
			for i++; i < len(text) && text[i] != c; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i++
		case isWord(c):
			start := i
			for i < len(text) && isWord(text[i]) {
				i++
			}
			rest := strings.TrimLeft(text[i:min(i+3, len(text))], " ")
			assigned := strings.HasPrefix(rest, "=") && !strings.HasPrefix(rest, "==")
			if before := text[:start]; !assigned && (strings.HasSuffix(before, "..") || !strings.HasSuffix(before, ".")) {
				all[text[start:i]] = true
			}
		default:
			i++
		}
	}
	return all
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// collect appends a file to those that are in order: what it uses before itself, each once.
func collect(to []*source, file string, within []string) ([]*source, error) {
	if slices.Contains(within, file) {
		return nil, fmt.Errorf("files use each other: %s -> %s", strings.Join(within, " -> "), file)
	}
	s := files()[file]
	if !s.script && slices.Contains(to, s) {
		return to, nil
	}
	var err error
	for _, home := range needs()[file] {
		if to, err = collect(to, home, append(within, file)); err != nil {
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
			if s.uses[name] && !slices.Contains(s.defines, name) && !slices.Contains(used, name) {
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

// begin returns the text of what a call of a script begins with, by the files that it is made of; function says that it is one, which its flags
// free from the check of a full Redis where it has any.
func begin(made []*source, function bool) string {
	var b strings.Builder
	b.WriteString("call_open(KEYS[1], ARGV)\n")
	for _, s := range made {
		if s.resets {
			b.WriteString("reset." + s.name + "()\n")
		}
	}
	if s := made[len(made)-1]; s.relieved && (!function || !slices.Contains(s.flags, "allow-oom")) {
		b.WriteString("redis.call('DEL', keys.relief)\n")
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
	return text + begin(made, false) + "return scripts." + name + "(KEYS, ARGV)\n", nil
}

// keyNames returns the names of keys that any file asks for by themselves, as keys.name.
var keyNames = sync.OnceValue(func() []string {
	found := map[string]bool{"relief": true}
	for _, s := range files() {
		for before, rest, more := strings.Cut(s.text, "keys."); more; before, rest, more = strings.Cut(rest, "keys.") {
			end := strings.IndexFunc(rest, func(r rune) bool { return r < 'a' || r > 'z' })
			if end > 0 && !isWord(rest[end]) && (before == "" || !isWord(before[len(before)-1])) {
				found[rest[:end]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
})

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
		fmt.Fprintf(&entries, "function entries.%s(KEYS, ARGV)\n%s%sreturn scripts.%s(KEYS, ARGV)\nend\n", name, preamble, begin(own, true), name)
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

package lua

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names scripts by it; nothing secret depends on it.
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Script is one as Redis takes it: FCALL by the name of its function, after FUNCTION LOAD of Code; or, where Redis has no functions,
// EVALSHA by the hash that Eval returns, and EVAL by its text.
type Script struct {
	Eval func() (text, sha string)
	// Function is empty for a script of a text of its own (NewScript).
	Function string
	Code     func() string
}

// NewScript returns the script of a text, for EVAL alone.
func NewScript(text string) Script {
	sha := hash(text)
	return Script{Eval: func() (string, string) { return text, sha }}
}

func hash(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// Library has every script by its name. A text is put together when it is first asked for, and all of them as one library where a Redis has not got it.
type Library map[string]func() Script

// Names returns the names of all scripts in their order.
func Names() []string { return slices.Sorted(maps.Keys(paths)) }

// SingleLayout is the layout of a deployment of one partition; that of another is the number of its partitions.
const SingleLayout = "1"

// oneLayout is how fragments/state.lua names the layout; newLibrary puts another in its place.
const oneLayout = "local PARTITIONS = '" + SingleLayout + "'\n"

// libraries has the scripts of the process, by preamble and layout.
var libraries sync.Map

// Scripts returns every script for deployments of a layout, behind a preamble that is empty but in a cluster. It is the same
// Library for all of the process: clone it to put another script in it.
func Scripts(preamble, layout string) Library {
	name := preamble + "\n" + layout
	if known, ok := libraries.Load(name); ok {
		return known.(Library) //nolint:forcetypeassert // the next line stores no other
	}
	known, _ := libraries.LoadOrStore(name, newLibrary(preamble, layout))
	return known.(Library) //nolint:forcetypeassert // as above
}

func newLibrary(preamble, layout string) Library {
	inLayout := func(text string) string {
		return strings.Replace(text, oneLayout, "local PARTITIONS = '"+layout+"'\n", 1)
	}
	of := sync.OnceValue(func() string { return LibraryPrefix + hash(preamble + "\n" + layout + "\n" + contents())[:hashLength] })
	code := sync.OnceValue(func() string {
		text, err := functions(preamble)
		if err != nil {
			panic(err) // The sources are in the binary, and a test loads it.
		}
		return "#!lua name=" + of() + "\nlocal LIBRARY = '" + of() + "'\n" + inLayout(text)
	})
	all := make(Library, len(paths))
	for name := range paths {
		all[name] = sync.OnceValue(func() Script {
			script := Script{Eval: sync.OnceValues(func() (string, string) {
				text, err := assemble(name)
				if err != nil {
					panic(err) // The sources are in the binary, and a test assembles each.
				}
				text = preamble + inLayout(text)
				return text, hash(text)
			})}
			if strings.HasPrefix(preamble, "#!") {
				return script // A first line that only a text can have.
			}
			script.Function, script.Code = of()+"_"+name, code
			return script
		})
	}
	return all
}

// LibraryPrefix begins the name of each library of scripts.
const LibraryPrefix = "headgate_"

// hashLength is how many digits of the hash of what it is made of are in the name of a library, so that those of two releases stand side by side.
const hashLength = 12

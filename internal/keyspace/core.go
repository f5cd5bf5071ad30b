package keyspace

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// CoreField is the field of the state that has those of Core.
const CoreField = "core"

// Core are the fields of the state that every call touches, in the order in which they are packed. Only a new version of the data may
// change it.
var Core = []string{
	"t", "bt", "dc", "step", "seq", "gen", "en", "eo", "rot", "dw", "accepted", "left:completed", "pat", "rf", "ma", "mf",
	"nm", "nh", "nw", "nc", "nl", "nb", "nk", "np", "wl",
}

const doubleSize = 8

// CoreText returns the text of a field of a packed core, as it would stand in a field of its own: "" for 0, which is as good as none.
// ok is false where the field is not in it, or the core is not whole.
func CoreText(core, field string) (text string, ok bool) {
	at := slices.Index(Core, field)
	if at < 0 || len(core) != len(Core)*doubleSize {
		return "", false
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64([]byte(core[at*doubleSize:])))
	if v == 0 {
		return "", true
	}
	return numberText(v), true
}

// packedQueue begins the packed text of a field q:QUEUE.
const packedQueue = 'Q'

// QueueText returns the text of a field q:QUEUE of the state with | between its numbers, whether it is packed or not. One that is broken is "".
func QueueText(field string) string {
	if field == "" || field[0] != packedQueue {
		return field
	}
	if len(field)%doubleSize != 1 {
		return ""
	}
	var text []byte
	for at := 1; at < len(field); at += doubleSize {
		if at > 1 {
			text = append(text, '|')
		}
		text = append(text, numberText(math.Float64frombits(binary.LittleEndian.Uint64([]byte(field[at:at+doubleSize]))))...)
	}
	return string(text)
}

func numberText(v float64) string {
	if v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 17, 64)
}

// Unpacked returns the fields of a state hash as if none were packed.
func Unpacked(state map[string]string) map[string]string {
	core, packed := state[CoreField]
	if !packed {
		return state
	}
	all := maps.Clone(state)
	delete(all, CoreField)
	for _, field := range Core {
		if text, ok := CoreText(core, field); text != "" {
			all[field] = text
		} else if ok {
			delete(all, field)
		}
	}
	for field, value := range all {
		if strings.HasPrefix(field, "q:") {
			all[field] = QueueText(value)
		}
	}
	return all
}

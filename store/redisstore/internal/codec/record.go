package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

// The flags of a record, drawn in fragments/record.lua, and its bounds; the offsets are lua's.
const (
	recordVersion  = 1
	awayVersion    = 2 // a stub: the body is in the second Redis (fragments/spill.lua)
	flagDeadline   = 1
	flagLarge      = 2
	flagTimed      = 4
	FlagCounted    = 8
	flagEnd        = 16 // a unique key goes with the job's end
	flagHistory    = 32
	flagStart      = 64 // a unique key goes with the job's start; with flagEnd, when its time is over
	FlagDelayed    = 128
	maxRecordClass = admission.MaxClasses
)

// EncodeRecord returns a job's record as admit takes it, and its payload where that stands under its own key.
func EncodeRecord(j *admission.Job, class int) (record, large []byte) {
	size := lua.HeaderSize + len(j.Queue) + len(j.Downstream) + len(j.Type) + 4*binary.MaxVarintLen64
	for name, value := range j.Headers {
		size += len(name) + len(value) + 4
	}
	flags := byte(0)
	if len(j.Payload) > store.LargePayload {
		flags |= flagLarge
		large = j.Payload
	} else {
		size += len(j.Payload)
	}
	r := make([]byte, lua.HeaderSize, size)
	r[0], r[2] = recordVersion, byte(class)
	r[4] = byte(admission.DefaultMaxAttempts)
	if j.MaxAttempts > 0 {
		r[4] = byte(j.MaxAttempts)
	}
	if !j.Deadline.IsZero() {
		flags |= flagDeadline
		binary.BigEndian.PutUint64(r[lua.AtScore:], uint64(j.Deadline.UnixMicro()))
	}
	if j.Delay > 0 || !j.RunAt.IsZero() {
		flags |= FlagDelayed
	}
	r[1] = flags | uniqueFlags(j.Unique)
	binary.BigEndian.PutUint32(r[lua.AtCost:], uint32(j.Cost))
	r[lua.AtQueueLen], r[lua.AtDownLen] = byte(len(j.Queue)), byte(len(j.Downstream))
	r = append(r, j.Queue...)
	r = append(r, j.Downstream...)
	r = appendString(r, j.Type)
	r = binary.AppendUvarint(r, uint64(j.Timeout.Microseconds()))
	r = binary.AppendUvarint(r, uint64(len(j.Headers)))
	if len(j.Headers) > 0 {
		sorted := make([]string, 0, len(j.Headers))
		for name := range j.Headers {
			sorted = append(sorted, name)
		}
		slices.Sort(sorted)
		for _, name := range sorted {
			r = appendString(r, name)
			r = appendString(r, j.Headers[name])
		}
	}
	if flags&flagLarge == 0 {
		r = append(r, j.Payload...)
	}
	return r, large
}

func uniqueFlags(u admission.Unique) byte {
	switch {
	case u.Key == "":
		return 0
	case u.Release == admission.ReleaseAtStart:
		return flagStart
	case u.Release == admission.ReleaseAtExpiry:
		return flagStart | flagEnd
	}
	return flagEnd
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errShortRecord = errors.New("record too short")

// DecodeRecord reads what admit stored under key. The job's texts are parts of raw, its payload is a copy.
func DecodeRecord(key, raw string) (store.Record, error) {
	if len(raw) < lua.HeaderSize || raw[0] != recordVersion && raw[0] != awayVersion {
		return store.Record{}, fmt.Errorf("read record of %q: %w", key, errShortRecord)
	}
	b, rest := []byte(raw[:lua.HeaderSize]), raw[lua.HeaderSize:]
	k, err := store.DecodeKey(key)
	if err != nil {
		return store.Record{}, err
	}
	rec := store.Record{
		Class: int(b[2]), Attempts: int(b[3]), Lost: max(0, int(b[5])-1), Suspect: b[5] > 0, Seq: binary.BigEndian.Uint64(b[lua.AtSeq:]),
		Arrival: time.UnixMicro(int64(binary.BigEndian.Uint64(b[lua.AtArrival:]))), Large: b[1]&flagLarge != 0,
		Away: b[0] == awayVersion, Timed: b[1]&flagTimed != 0, Plain: b[1]&^(flagDeadline|flagTimed|FlagDelayed) == 0 && b[5] == 0,
	}
	j := &rec.Job
	j.Tenant, j.ID, j.MaxAttempts = k.Tenant, k.ID, int(b[4])
	j.Cost = admission.Tokens(binary.BigEndian.Uint32(b[lua.AtCost:]))
	if b[1]&flagDeadline != 0 {
		j.Deadline = time.UnixMicro(int64(binary.BigEndian.Uint64(b[lua.AtScore:])))
	}
	queueLen, downLen := int(b[lua.AtQueueLen]), int(b[lua.AtDownLen])
	if len(rest) < queueLen+downLen {
		return store.Record{}, fmt.Errorf("read record of %q: %w", key, errShortRecord)
	}
	j.Queue, j.Downstream = rest[:queueLen], rest[queueLen:queueLen+downLen]
	if len(rest) == queueLen+downLen { // What stands in for it has no body: see fill.lua.
		return store.Record{}, fmt.Errorf("read record of %q: %w", key, store.ErrRecordGone)
	}
	if err := decodeBody(j, rest[queueLen+downLen:]); err != nil {
		return store.Record{}, fmt.Errorf("read record of %q: %w", key, err)
	}
	if _, rec.Uncharged = j.Headers[admission.HeaderUncharged]; rec.Uncharged {
		delete(j.Headers, admission.HeaderUncharged)
	}
	return rec, nil
}

func decodeBody(j *admission.Job, text string) error {
	var ok bool
	if j.Type, text, ok = cutString(text); !ok {
		return errShortRecord
	}
	timeout, text, ok := cutUvarint(text)
	if !ok {
		return errShortRecord
	}
	j.Timeout = time.Duration(timeout) * time.Microsecond
	count, text, ok := cutUvarint(text)
	if !ok || count > admission.MaxHeaders+1 { // with HeaderUncharged
		return errShortRecord
	}
	if count > 0 {
		j.Headers = make(map[string]string, count)
	}
	for range count {
		var name, value string
		if name, text, ok = cutString(text); !ok {
			return errShortRecord
		}
		if value, text, ok = cutString(text); !ok {
			return errShortRecord
		}
		j.Headers[name] = value
	}
	j.Payload = []byte(text)
	return nil
}

func cutUvarint(text string) (value uint64, rest string, ok bool) {
	value, n := binary.Uvarint([]byte(text[:min(len(text), binary.MaxVarintLen64)]))
	if n <= 0 {
		return 0, "", false
	}
	return value, text[n:], true
}

func cutString(text string) (value, rest string, ok bool) {
	n, text, ok := cutUvarint(text)
	if !ok || n > uint64(len(text)) {
		return "", "", false
	}
	return text[:n], text[n:], true
}

package store

import (
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/admission"
)

// Intervention says who changes what works by itself, and why. The script that makes the change tells both to the audit, in the
// same moment.
type Intervention struct {
	// Author and Reason have up to MaxAuthor and MaxReason bytes of UTF-8 without control characters. A program that names nobody is
	// told of without a name.
	Author, Reason string
	// Act names what several calls do, such as a purge of many pages: what they did is one entry of the audit, with the number of all.
	// Empty means that each call is one.
	Act string
	// Own says that a tenant does this to its own jobs. That is counted among what left them and stands in no audit, or any tenant
	// could push the operators' entries out of it.
	Own bool

	// since is when it was done, of a hold that a migration carries to another partition; zero is now.
	since time.Time
}

// Validate checks what is told. A reason may hold anything: whoever shows it sees to that.
func (i Intervention) Validate() error {
	var bad []error
	for _, text := range []struct {
		field, value string
		most         int
	}{{"author", i.Author, MaxAuthor}, {"reason", i.Reason, MaxReason}, {"act", i.Act, maxAct}} {
		if n := len(text.value); n > text.most {
			bad = append(bad, &admission.FieldError{Field: text.field, Value: strconv.Itoa(n) + " bytes", Allowed: "up to " + strconv.Itoa(text.most) + " bytes"})
		}
	}
	if strings.ContainsFunc(i.Author+i.Act, unicode.IsControl) {
		bad = append(bad, &admission.FieldError{Field: "author", Value: strconv.Quote(i.Author), Allowed: "no control characters, nor in act"})
	}
	return errors.Join(bad...)
}

// maxAct is the largest size of an Act.
const maxAct = 64

// named returns it with an act, so that what several partitions do is one.
func (i Intervention) named() Intervention {
	if i.Act == "" {
		i.Act = rand.Text()
	}
	return i
}

// text is it as fragments/audit.lua reads it.
func (i Intervention) text(action string) string {
	act, since := i.named().Act, ""
	if !i.since.IsZero() {
		since = strconv.FormatInt(i.since.UnixMicro(), 10)
	}
	if i.Own {
		act = ""
	}
	return strings.Join([]string{action, act, i.Author, since, i.Reason}, "\n")
}

// quiet returns it as another partition is told of it than the one whose audit has the entry.
func (i Intervention) quiet() Intervention {
	i.Own = true
	return i
}

// holdMark ends the reason of a pause or a suspension; when it began, and who began it, follow.
const holdMark = "\x01"

// parseHoldReason takes the reason of a hold apart. One of an older release has no mark.
func parseHoldReason(text string) (reason, author string, since time.Time) {
	at := strings.LastIndex(text, holdMark)
	if at < 0 {
		return text, "", time.Time{}
	}
	began, author, _ := strings.Cut(text[at+len(holdMark):], "|")
	since, _ = parseMicros(began)
	return text[:at], author, since
}

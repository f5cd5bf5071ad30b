package codec

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/store"
)

// InterventionText is it as fragments/audit.lua reads it.
func InterventionText(i store.Intervention, action string) string {
	act, since := i.Named().Act, ""
	if !i.Since.IsZero() {
		since = strconv.FormatInt(i.Since.UnixMicro(), 10)
	}
	if i.Own {
		act = ""
	}
	return strings.Join([]string{action, act, i.Author, since, i.Reason}, "\n")
}

// holdMark ends the reason of a pause or a suspension; when it began, and who began it, follow.
const holdMark = "\x01"

// ParseHoldReason takes the reason of a hold apart. One of an older release has no mark.
func ParseHoldReason(text string) (reason, author string, since time.Time) {
	at := strings.LastIndex(text, holdMark)
	if at < 0 {
		return text, "", time.Time{}
	}
	began, author, _ := strings.Cut(text[at+len(holdMark):], "|")
	since, _ = ParseMicros(began)
	return text[:at], author, since
}

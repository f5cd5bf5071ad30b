package rls

import (
	"errors"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The bounds of a message. Envoy sends a few descriptors of a few entries.
const (
	maxMessage     = 64 << 10
	maxDescriptors = 64
	maxEntries     = 32
)

var (
	errMalformed = errors.New("the message is no RateLimitRequest")
	errTooMany   = errors.New("the message has more than 64 descriptors, or one more than 32 entries")
)

// call is envoy.service.ratelimit.v3.RateLimitRequest.
type call struct {
	domain      string
	descriptors []descriptor
	hits        uint64 // hits_addend; 0 is 1
}

// descriptor is envoy.extensions.common.ratelimit.v3.RateLimitDescriptor; its limit, which would override the policy's, is not read.
type descriptor struct {
	entries []Match
	// hits is its own hits_addend where own is set. Of one whose hits are to be given back (is_negative_hits) it is none: nothing was noted of what was taken.
	hits uint64
	own  bool
}

// fields calls each with the fields of a message, in order.
func fields(message []byte, each func(number protowire.Number, value []byte, varint uint64) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errMalformed
		}
		message = message[n:]
		var value []byte
		var varint uint64
		switch kind {
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		case protowire.Fixed32Type, protowire.Fixed64Type, protowire.StartGroupType, protowire.EndGroupType:
			n = protowire.ConsumeFieldValue(number, kind, message)
			number = 0
		}
		if n < 0 {
			return errMalformed
		}
		message = message[n:]
		if err := each(number, value, varint); err != nil {
			return err
		}
	}
	return nil
}

func readCall(message []byte) (c call, err error) {
	err = fields(message, func(number protowire.Number, value []byte, varint uint64) error {
		switch number {
		case 1:
			c.domain = string(value)
		case 2:
			if len(c.descriptors) == maxDescriptors {
				return errTooMany
			}
			d, err := readDescriptor(value)
			c.descriptors = append(c.descriptors, d)
			return err
		case 3:
			c.hits = varint & (1<<32 - 1)
		}
		return nil
	})
	return c, err
}

func readDescriptor(message []byte) (d descriptor, err error) {
	back := false
	err = fields(message, func(number protowire.Number, value []byte, varint uint64) error {
		switch number {
		case 1:
			if len(d.entries) == maxEntries {
				return errTooMany
			}
			var e Match
			err := fields(value, func(number protowire.Number, value []byte, _ uint64) error {
				switch number {
				case 1:
					e.Key = string(value)
				case 2:
					e.Value = string(value)
				}
				return nil
			})
			d.entries = append(d.entries, e)
			return err
		case 3:
			d.own = true
			return fields(value, func(number protowire.Number, _ []byte, varint uint64) error {
				if number == 1 {
					d.hits = varint
				}
				return nil
			})
		case 4:
			back = varint != 0
		}
		return nil
	})
	if back {
		d.own, d.hits = true, 0
	}
	return d, err
}

// The codes of an answer.
const (
	codeOK        = 1
	codeOverLimit = 2
)

// status is RateLimitResponse.DescriptorStatus. Without limit there is no current_limit.
type status struct {
	code       uint64
	limited    bool
	perUnit    uint64
	unit       uint64 // 1 second to 4 day
	name       string
	remaining  uint64
	untilReset time.Duration
}

// header is envoy.config.core.v3.HeaderValue.
type header struct{ key, value string }

func appendMessage(to []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), message)
}

// appendUint leaves zero out, as proto3 does.
func appendUint(to []byte, number protowire.Number, value uint64) []byte {
	if value == 0 {
		return to
	}
	return protowire.AppendVarint(protowire.AppendTag(to, number, protowire.VarintType), value)
}

func writeAnswer(overall uint64, statuses []status, headers []header) []byte {
	message := appendUint(nil, 1, overall)
	for i := range statuses {
		s := &statuses[i]
		one := appendUint(nil, 1, s.code)
		if s.limited {
			limit := appendUint(appendUint(nil, 1, min(s.perUnit, 1<<32-1)), 2, s.unit)
			one = appendMessage(one, 2, appendMessage(limit, 3, []byte(s.name)))
			one = appendUint(one, 3, min(s.remaining, 1<<32-1))
			wait := appendUint(nil, 1, uint64(s.untilReset/time.Second))                       //nolint:gosec // never below zero
			one = appendMessage(one, 4, appendUint(wait, 2, uint64(s.untilReset%time.Second))) //nolint:gosec // never below zero
		}
		message = appendMessage(message, 2, one)
	}
	for _, h := range headers {
		message = appendMessage(message, 3, appendMessage(appendMessage(nil, 1, []byte(h.key)), 2, []byte(h.value)))
	}
	return message
}

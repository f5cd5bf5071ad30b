package memory

import "github.com/headgate/headgate/admission"

// recordSize is how many bytes a store keeps of a job, which bounds in bytes count: its record in Redis, as package redisstore encodes it, and
// its payload where that stands beside it.
func recordSize(j *admission.Job) int {
	size := recordHeader + len(j.Queue) + len(j.Downstream) + stringSize(j.Type) + varintSize(uint64(j.Timeout.Microseconds())) +
		varintSize(uint64(len(j.Headers))) + len(j.Payload)
	for name, value := range j.Headers {
		size += stringSize(name) + stringSize(value)
	}
	return size
}

// recordHeader is lua.HeaderSize: the conformance of the bounds holds them equal.
const recordHeader = 36

func stringSize(s string) int { return varintSize(uint64(len(s))) + len(s) }

func varintSize(n uint64) (size int) {
	for size = 1; n >= 0x80; size++ {
		n >>= 7
	}
	return size
}

package keyspace

import (
	"math"
	"math/bits"
	"strconv"
)

// Slots is the number of slots of a Redis Cluster.
const Slots = 1 << 14

// firstTag is the hash tag of partition 0, in deployments of one partition and of many.
const firstTag = "0"

// slack is how far the slot of a tag may be from where its partition is to lie.
const slack = 8

// tag returns the hash tag of a partition. It does not depend on how many there are, so that a partition keeps its keys
// when others are added. The slots of 0, 1, 2… lie around the circle of slots, from that of the first tag on, like the
// numbers of van der Corput: whatever the number of partitions, even parts of the circle hold about as many of them.
func tag(partition int) string {
	if partition == 0 {
		return firstTag
	}
	turn := bits.Reverse32(uint32(partition)) >> 18 //nolint:gosec // partitions are few; 32 - 18 bits are those of a slot
	goal := (SlotOf(firstTag) + int(turn)) % Slots
	for suffix := 0; ; suffix++ {
		tag := strconv.Itoa(partition) + "." + strconv.Itoa(suffix)
		if distance := (SlotOf(tag) - goal + Slots) % Slots; min(distance, Slots-distance) <= slack {
			return tag
		}
	}
}

// SlotOf returns the slot of a hash tag: its CRC16 as in XMODEM.
func SlotOf(tag string) int {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return int(crc) % Slots
}

// Of returns the partition of a tenant among so many, from 0: by the jump consistent hash of Lamping and Veach (2014) over
// FNV-1a, so that a further partition takes its share of tenants from each and moves no other.
func Of(tenant string, partitions int) int {
	if partitions == 1 {
		return 0
	}
	const offset, prime = 14695981039346656037, 1099511628211
	key := uint64(offset)
	for i := range len(tenant) {
		key = (key ^ uint64(tenant[i])) * prime
	}
	at, next := 0, 0
	for next < partitions {
		at = next
		key = key*2862933555777941757 + 1
		next = int(float64(at+1) * (math.Exp2(31) / float64(key>>33+1)))
	}
	return at
}

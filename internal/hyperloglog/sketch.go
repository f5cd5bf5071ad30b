package hyperloglog

import (
	"encoding/binary"
	"math"
	"math/bits"
)

const (
	// indexBits of a hash choose a register, the first bit that is set of the rankBits others is its rank.
	indexBits = 14
	rankBits  = 64 - indexBits
	registers = 1 << indexBits
	// alpha is the constant of the estimator for ever so many registers: 1/(2·ln 2).
	alpha = 0.721347520444481703680
	// seed is that of Redis.
	seed = 0xadc83b19
)

// Sketch is what is known of the names that were added. The zero Sketch has none. It is for one goroutine.
type Sketch struct{ registers [registers]uint8 }

// Add adds a name, and reports whether that made a difference: a name that was added before makes none, and ever fewer new ones do.
func (s *Sketch) Add(name string) bool {
	hash := murmur(name)
	index, rest := hash&(registers-1), hash>>indexBits|1<<rankBits
	rank := uint8(bits.TrailingZeros64(rest) + 1)
	if rank <= s.registers[index] {
		return false
	}
	s.registers[index] = rank
	return true
}

// Count returns how many different names were added, about.
func (s *Sketch) Count() int64 {
	var ranks [rankBits + 2]int
	for _, rank := range s.registers {
		ranks[rank]++
	}
	z := registers * tau(float64(registers-ranks[rankBits+1])/registers)
	for rank := rankBits; rank >= 1; rank-- {
		z = (z + float64(ranks[rank])) / 2
	}
	z += registers * sigma(float64(ranks[0])/registers)
	return int64(math.Round(alpha * registers * registers / z))
}

// sigma and tau are those of Ertl: what registers that were never raised, and those that cannot be raised further, add.
func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	for y, z := 1.0, x; ; y += y {
		x *= x
		before := z
		if z += x * y; z == before {
			return z
		}
	}
}

func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	for y, z := 0.5, 1-x; ; y /= 2 {
		x = math.Sqrt(x)
		before := z
		if z -= (1 - x) * (1 - x) * y; z == before {
			return z / 3
		}
	}
}

// murmur is MurmurHash64A of Austin Appleby, with the seed of Redis.
func murmur(name string) uint64 {
	const m, r = 0xc6a4a7935bd1e995, 47
	hash := seed ^ uint64(len(name))*m
	data := []byte(name)
	for ; len(data) >= 8; data = data[8:] {
		k := binary.LittleEndian.Uint64(data) * m
		k = (k ^ k>>r) * m
		hash = (hash ^ k) * m
	}
	if len(data) > 0 {
		tail := uint64(0)
		for i, b := range data {
			tail |= uint64(b) << (8 * i)
		}
		hash = (hash ^ tail) * m
	}
	hash = (hash ^ hash>>r) * m
	return hash ^ hash>>r
}

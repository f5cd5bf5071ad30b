package limiter

import (
	"sync/atomic"

	"github.com/headgate/headgate/admission"
)

// held is the tokens of one scope that are on lease, to be spent without a lock. The word is an epoch above a count. What was
// taken can be put back only in the epoch in which it was taken: a count that was told to Redis never grows afterwards.
type held struct{ word atomic.Uint64 }

// tokenBits hold more than the largest burst.
const (
	tokenBits = 40
	tokenMask = 1<<tokenBits - 1
)

func (h *held) tokens() admission.Tokens { return admission.Tokens(h.word.Load() & tokenMask) }

// take spends cost if there is as much. It returns what is left, and the epoch for putBack.
func (h *held) take(cost admission.Tokens) (left admission.Tokens, epoch uint64, ok bool) {
	for {
		word := h.word.Load()
		left = admission.Tokens(word&tokenMask) - cost
		if left < 0 {
			return 0, 0, false
		}
		if h.word.CompareAndSwap(word, word-uint64(cost)) {
			return left, word >> tokenBits, true
		}
	}
}

// putBack undoes a take, unless the tokens have been counted since.
func (h *held) putBack(cost admission.Tokens, epoch uint64) {
	for {
		word := h.word.Load()
		if word>>tokenBits != epoch || h.word.CompareAndSwap(word, word+uint64(cost)) {
			return
		}
	}
}

// count returns how many there are and begins a new epoch.
func (h *held) count() admission.Tokens {
	return admission.Tokens((h.word.Add(1<<tokenBits) - 1<<tokenBits) & tokenMask)
}

// add puts new tokens beside those that are there.
func (h *held) add(tokens admission.Tokens) { h.word.Add(uint64(tokens)) }

// drain takes all and begins a new epoch.
func (h *held) drain() admission.Tokens {
	for {
		word := h.word.Load()
		if h.word.CompareAndSwap(word, (word>>tokenBits+1)<<tokenBits) {
			return admission.Tokens(word & tokenMask)
		}
	}
}

package policy

import (
	"errors"
	"fmt"
)

// ErrStored matches a stored policy that is of no use. That is no fault of what a caller gave, so it does not match
// headgate.ErrInvalid.
var ErrStored = errors.New("the stored policy is of no use")

// Stored reads what a store holds as its policy; nil, where none was stored, is Default.
func Stored(text []byte) (Policy, error) {
	if text == nil {
		return Default(), nil
	}
	p, err := Unmarshal(text)
	if err != nil {
		return Policy{}, fmt.Errorf("%w: %s", ErrStored, err.Error())
	}
	return p, nil
}

// PrepareStored is Stored and Prepare.
func PrepareStored(text []byte) (*Compiled, error) {
	p, err := Stored(text)
	if err != nil {
		return nil, err
	}
	c, err := p.Prepare()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrStored, err.Error())
	}
	return c, nil
}

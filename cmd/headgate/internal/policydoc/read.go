package policydoc

import (
	"fmt"
	"io"
	"os"

	"github.com/headgate/headgate/policy"
)

// ReadPolicy reads a policy from a file, standard input for "-", or takes the built-in one for "default".
func ReadPolicy(name string, stdin io.Reader) (policy.Policy, error) {
	_, document, err := ReadDocument(name, stdin)
	return document, err
}

// ReadDocument is ReadPolicy with the text that was read.
func ReadDocument(name string, stdin io.Reader) (text []byte, document policy.Policy, err error) {
	if name == "default" {
		text, err = policy.Marshal(policy.Default())
		return text, policy.Default(), err
	}
	if text, err = ReadText(name, stdin); err != nil {
		return nil, policy.Policy{}, err
	}
	document, err = policy.Unmarshal(text)
	return text, document, err
}

// ReadText reads a file, or standard input for "-".
func ReadText(name string, stdin io.Reader) (text []byte, err error) {
	if name == "-" {
		text, err = io.ReadAll(io.LimitReader(stdin, policy.MaxBytes+1))
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}

package policydoc

import (
	"testing"

	"github.com/headgate/headgate/policy"
)

// agree checks that the policy and its schema take what is right, and nothing else.
func agree(t *testing.T, texts map[string]bool) {
	t.Helper()
	schema := compiled(t)
	for text, right := range texts {
		if _, err := policy.Unmarshal([]byte(text)); (err == nil) != right {
			t.Errorf("%s: policy says %v", text, err)
		}
		if err := validate(t, schema, text); (err == nil) != right {
			t.Errorf("%s: the schema says %v", text, err)
		}
	}
}

func TestPolicyAndSchemaAgreeOnTypes(t *testing.T) {
	t.Parallel()
	agree(t, map[string]bool{
		`{"observe": ["global", "acme", "acme:mail", "acme:mail:high", "acme:mail:type=a:b"]}`:                                      true,
		`{"observe": ["acme:mail:type=*"]}`:                                                                                         false,
		`{"tenants": {"ann": {"queues": {"mail": {"type_limits": {"*": {"tokens": 1, "per": "1s"}, "a:b": {"enabled": false}}}}}}}`: true,
		`{"tenants": {"ann": {"queues": {"*": {"type_limits": {"a": {"enabled": false}}}}}}}`:                                       false,
		`{"tenants": {"ann": {"queues": {"mail": {"limit": {"enabled": false}}}}}}`:                                                 false,
		`{"tenants": {"ann": {"queues": {"mail": {"type_limits": {"a b": {"enabled": false}}}}}}}`:                                  false,
	})
}

package trace

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/headgate/headgate/admission"
)

// ClassOf returns the class of a tenant's jobs: a stable hash of its name and the seed, even over the classes.
func ClassOf(tenant string, seed uint64, classes []admission.Class) admission.Priority {
	hash := fnv.New64a()
	_, _ = hash.Write(binary.BigEndian.AppendUint64(nil, seed))
	_, _ = hash.Write([]byte(tenant))
	return classes[hash.Sum64()%uint64(len(classes))].Name
}

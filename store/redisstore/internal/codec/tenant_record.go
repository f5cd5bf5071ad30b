package codec

import (
	"encoding/binary"
	"fmt"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// recordPrefix are the bytes of a record's version before its JSON, the highest first.
const recordPrefix = 7

// ParseRecord reads what `records` has of a tenant, nothing for none.
func ParseRecord(tenant, stored string) (store.TenantRecord, error) {
	r := store.TenantRecord{Tenant: tenant, Version: store.NoRecord}
	if stored == "" {
		return r, nil
	}
	if len(stored) < recordPrefix {
		return r, fmt.Errorf("read record of tenant %s: %w", tenant, redisconn.ErrUnknownReply)
	}
	var version [8]byte
	copy(version[8-recordPrefix:], stored)
	r.Version, r.Text = int64(binary.BigEndian.Uint64(version[:])), []byte(stored[recordPrefix:])
	return r, nil
}

// Stale returns what a script says whose limits are not those in force, as fragments/path.lua words it; nil for another reply.
func Stale(reply []string) error {
	if len(reply) == 0 || reply[0] != "stale" {
		return nil
	}
	if len(reply) < 4 {
		return store.ErrStale
	}
	stale := &store.StaleRecordsError{}
	for i := 2; i+1 < len(reply); i += 2 {
		r, err := ParseRecord(reply[i], reply[i+1])
		if err != nil {
			return err
		}
		stale.Records = append(stale.Records, r)
	}
	return stale
}

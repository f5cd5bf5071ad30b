package store

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/lua"
)

// migrationField is the field of the state that names the migration a partition takes part in, or took part in last.
const migrationField = "migration"

// roleField says what its part in it is: a migration is only gone on with by one that gives it the same.
const roleField = "role"

const (
	roleInPlace = "in place"
	roleSource  = "from"
	roleTarget  = "to"
)

// MigrationConfig says what a Migration does.
type MigrationConfig struct {
	// Prefix begins the keys on both sides; empty means "hg".
	Prefix string
	// Partitions is how many the deployment is to have, 1 to MaxPartitions.
	Partitions int
	// Target names the Redis that it moves to in one word without a password, for processes that look for it where it was.
	// It is not used where that is the same Redis.
	Target string
	// Wait is for how long workers, schedulers and limiters may take to end; zero is not at all.
	Wait time.Duration
	// Update makes of the text of the policy in force the same policy as another version, which is stored because parts of
	// its bounds change.
	Update func(text []byte, version int64) (PolicyUpdate, error)
	// Observe is told how far it is, in one goroutine. It may be nil.
	Observe func(MigrationProgress)
}

// MigrationProgress is how far a Migration is.
type MigrationProgress struct {
	// Step is what it does now, such as "copy jobs".
	Step string
	// Done of Total things are done in the step; Total is 0 where it is not known.
	Done, Total int64
}

// Migration moves a deployment from one number of partitions to another, on the same Redis or to another one. Everything that it
// does may be done again, so one that was killed at any point is taken up by another with the same config. It is for one
// goroutine.
type Migration struct {
	config MigrationConfig
	// from are the partitions that may hold what is to move, to those that the deployment is to have: in place the same ones.
	from, to []*Store
	// target is the Store of to.
	target  *Store
	inPlace bool
	// layout is what all of them say meanwhile; before is the number of partitions there were.
	layout string
	before int
	// id names the migration; fenced says that nobody else can change anything in from any more, done that it was committed.
	id           string
	fenced, done bool
	// emptied says that to is a Redis which the deployment has left, and holds but a note of that.
	emptied bool
	policy  *PolicyUpdate
	jobs    int64
}

// OpenMigration looks at both sides and refuses what cannot be migrated; it changes nothing. Where both are the same Redis, the
// deployment grows or shrinks in place.
func OpenMigration(ctx context.Context, from, to redis.UniversalClient, config MigrationConfig) (*Migration, error) {
	config.Prefix = cmp.Or(config.Prefix, keyspace.DefaultPrefix)
	if config.Partitions < 1 || config.Partitions > MaxPartitions {
		return nil, &admission.FieldError{Field: "partitions", Value: strconv.Itoa(config.Partitions), Allowed: "1 to 256"}
	}
	m := &Migration{config: config}
	source, err := m.open(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("where it is: %w", err)
	}
	if m.target, err = m.open(ctx, to); err != nil {
		return nil, fmt.Errorf("where it is to be: %w", err)
	}
	if m.inPlace, err = sameRedis(ctx, source, m.target); err != nil {
		return nil, err
	}
	at, err := source.readMigration(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.begin(ctx, source, at); err != nil {
		return nil, err
	}
	if err := m.preparePolicy(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// open returns the store of the first partition of a side.
func (m *Migration) open(ctx context.Context, client redis.UniversalClient) (*Store, error) {
	s, err := newStore(client, Config{Prefix: m.config.Prefix}, "")
	if err != nil {
		return nil, err
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		if s.master, err = mastersOf(ctx, cluster, s.partition.State()); err != nil {
			return nil, err
		}
	}
	if err := s.checkRedis(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// sameRedis reports whether two stores have the same keys.
func sameRedis(ctx context.Context, a, b *Store) (bool, error) {
	var ids [2]string
	for i, s := range []*Store{a, b} {
		info, err := connection(s).Info(ctx, "server").Result()
		if err != nil {
			return false, fmt.Errorf("read INFO: %w", unread(err))
		}
		ids[i] = parseInfo(info)["run_id"]
		if client, ok := connection(s).(*redis.Client); ok {
			ids[i] += "/" + strconv.Itoa(client.Options().DB)
		}
	}
	return ids[0] == ids[1], nil
}

// migrationState is what the first partition of a side says.
type migrationState struct {
	layout, id, role string
	// exists says that there is a deployment, used that it has admitted a job or has a policy.
	exists, used bool
}

func (s *Store) readMigration(ctx context.Context) (migrationState, error) {
	values, err := connection(s).HMGet(ctx, s.partition.State(), partitionsField, migrationField, roleField, dataField, "accepted", "pv").Result()
	if err != nil {
		return migrationState{}, fmt.Errorf("read state: %w", unread(err))
	}
	state := migrationState{layout: cmp.Or(textAt(values, 0), lua.SingleLayout), id: textAt(values, 1), role: textAt(values, 2)}
	if err := newerData(int(whole(textAt(values, 3)))); err != nil {
		return migrationState{}, err
	}
	for i, value := range values {
		state.exists = state.exists || value != nil
		state.used = state.used || value != nil && i > 3
	}
	return state, nil
}

// begin finds out what is to be done, or how far an earlier run has come.
func (m *Migration) begin(ctx context.Context, source *Store, at migrationState) error {
	before, after, migrating := strings.Cut(at.layout, ">")
	switch {
	case !at.exists:
		return fmt.Errorf("there is no deployment under %s", source.partition.Base())
	case migrating && before == "":
		return &layoutError{stored: at.layout}
	case migrating && at.role != m.role():
		return fmt.Errorf("%w, and is %q in that: end it first, with the same --from and --to", ErrMigrating, at.role)
	case migrating && after != strconv.Itoa(m.config.Partitions):
		return fmt.Errorf("%w to %s partitions: end that first, with the same target", ErrMigrating, after)
	}
	m.before, m.fenced, m.id = max(1, int(whole(before))), migrating, at.id
	if !m.inPlace {
		if err := m.checkTarget(ctx); err != nil {
			return err
		}
	} else if !migrating && m.before == m.config.Partitions {
		m.done = true
	}
	if m.id == "" || !migrating {
		m.id = uuid.NewString()
	}
	m.layout = strconv.Itoa(m.before) + ">" + strconv.Itoa(m.config.Partitions)
	most := m.config.Partitions
	if m.inPlace {
		most = max(m.before, m.config.Partitions)
	}
	if m.config.Partitions > 1 {
		m.target.parts = m.config.Partitions
	}
	m.target.setLayout(m.layout)
	for i := range most {
		m.to = append(m.to, m.part(m.target, i))
	}
	if m.config.Partitions > 1 {
		m.target.all = m.to[:m.config.Partitions]
	}
	if m.from = m.to; !m.inPlace {
		m.from = nil
		for i := range m.before {
			m.from = append(m.from, m.part(source, i))
		}
	}
	m.to = m.to[:m.config.Partitions]
	return nil
}

// part returns the store of a partition for which the layout in force is that of the migration.
func (m *Migration) part(of *Store, index int) *Store {
	one := *of
	one.all, one.partition, one.index = nil, keyspace.New(m.config.Prefix, index), index
	if m.config.Partitions > 1 {
		one.whole, one.parts = m.target, m.config.Partitions
	}
	one.setLayout(m.layout)
	return &one
}

// checkTarget refuses another Redis that holds something else.
func (m *Migration) checkTarget(ctx context.Context) error {
	if m.config.Target == "" {
		return &admission.FieldError{Field: "target", Value: `""`, Allowed: "the address of the Redis that the deployment moves to"}
	}
	at, err := m.target.readMigration(ctx)
	if err != nil {
		return err
	}
	before, after, _ := strings.Cut(at.layout, ">")
	for i := 1; i < max(m.config.Partitions, int(whole(before)), int(whole(after))); i++ {
		other, err := m.part(m.target, i).readMigration(ctx)
		if err != nil {
			return err
		}
		at.used = at.used || other.used
	}
	ours := m.fenced && at.id == m.id && at.role == roleTarget
	m.done = ours && !strings.Contains(at.layout, ">")
	m.emptied = strings.HasPrefix(at.layout, ">")
	switch {
	case m.fenced && !ours:
		return fmt.Errorf("%w to another target than this one: end that first", ErrMigrating)
	case at.used && !ours:
		return fmt.Errorf("the target holds another deployment under %s, or a part of one: give this another prefix, or flush that if nobody needs it", m.target.partition.Base())
	}
	return nil
}

// preparePolicy reads the policy in force and refuses what so many partitions cannot divide.
func (m *Migration) preparePolicy(ctx context.Context) error {
	first := m.from[0]
	text, err := first.Policy(ctx)
	if err != nil || text == nil || m.done {
		return err
	}
	version, edit, err := first.policyVersion(ctx)
	if err != nil {
		return err
	}
	if edit != m.edit() {
		version++ // Else an earlier run has stored it in place.
	}
	u, err := m.config.Update(text, version)
	if err != nil {
		return fmt.Errorf("read policy: %w", err)
	}
	u.Edit, u.Expected = m.edit(), version-1
	u.Author, u.Reason = "headgate migrate", "from "+strconv.Itoa(m.before)+" to "+strconv.Itoa(m.config.Partitions)+" partitions"
	if m.config.Partitions > 1 {
		if err := u.checkParts(m.config.Partitions); err != nil {
			return err
		}
	}
	m.policy = &u
	return nil
}

// role returns that of the partitions of from.
func (m *Migration) role() string {
	if m.inPlace {
		return roleInPlace
	}
	return roleSource
}

// edit names the storing of the policy by this migration.
func (m *Migration) edit() string { return "migrate " + m.id }

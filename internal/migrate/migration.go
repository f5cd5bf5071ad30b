package migrate

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
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
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

// Config says what a Migration does.
type Config struct {
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
	Update func(text []byte, version int64) (store.PolicyUpdate, error)
	// Observe is told how far it is, in one goroutine. It may be nil.
	Observe func(Progress)
}

// Progress is how far a Migration is.
type Progress struct {
	// Step is what it does now, such as "copy jobs".
	Step string
	// Done of Total things are done in the step; Total is 0 where it is not known.
	Done, Total int64
}

// partition is the store of one, and its keys.
type partition struct {
	*redisstore.Partition
	conn *redisconn.Conn
}

func partsOf(stores []*redisstore.Partition) []*partition {
	all := make([]*partition, len(stores))
	for i, s := range stores {
		all[i] = &partition{s, s.Conn()}
	}
	return all
}

// Migration moves a deployment from one number of partitions to another, on the same Redis or to another one. Everything that it
// does may be done again, so one that was killed at any point is taken up by another with the same config. It is for one
// goroutine.
type Migration struct {
	config Config
	// from are the partitions that may hold what is to move, to those that the deployment is to have: in place the same ones.
	from, to []*partition
	// target is the deployment of to, running are the partitions of from as long as they are in use.
	target  store.Deployment
	running []*redisstore.Partition
	inPlace bool
	// layout is what all of them say meanwhile; before is the number of partitions there were.
	layout string
	before int
	// id names the migration; fenced says that nobody else can change anything in from any more, done that it was committed.
	id           string
	fenced, done bool
	// emptied says that to is a Redis which the deployment has left, and holds but a note of that.
	emptied bool
	policy  *store.PolicyUpdate
	jobs    int64
	// pauses are those that a partition of to has.
	pauses map[*partition]map[store.GateName]bool
}

// Open looks at both sides and refuses what cannot be migrated; it changes nothing. Where both are the same Redis, the
// deployment grows or shrinks in place.
func Open(ctx context.Context, from, to redis.UniversalClient, config Config) (*Migration, error) {
	config.Prefix = cmp.Or(config.Prefix, keyspace.DefaultPrefix)
	if config.Partitions < 1 || config.Partitions > store.MaxPartitions {
		return nil, &admission.FieldError{Field: "partitions", Value: strconv.Itoa(config.Partitions), Allowed: "1 to 256"}
	}
	m := &Migration{config: config, pauses: map[*partition]map[store.GateName]bool{}}
	here, err := m.open(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("where it is: %w", err)
	}
	there, err := m.open(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("where it is to be: %w", err)
	}
	if m.inPlace, err = sameRedis(ctx, here, there); err != nil {
		return nil, err
	}
	at, err := read(ctx, here)
	if err != nil {
		return nil, err
	}
	if err := m.begin(ctx, here, there, at); err != nil {
		return nil, err
	}
	if err := m.divide(ctx, from, to); err != nil {
		return nil, err
	}
	if err := m.preparePolicy(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// open returns the first partition of a side.
func (m *Migration) open(ctx context.Context, client redis.UniversalClient) (*redisconn.Conn, error) {
	_, only, err := m.unchecked(ctx, client, redisconn.Division{Layout: lua.SingleLayout, Most: 1})
	if err != nil {
		return nil, err
	}
	first := only[0].Conn()
	return first, redisconn.CheckRedis(ctx, redisconn.Client(first))
}

func (m *Migration) unchecked(ctx context.Context, client redis.UniversalClient, as redisconn.Division) (store.Deployment, []*redisstore.Partition, error) {
	return redisstore.Unchecked(ctx, client, redisstore.Config{Prefix: m.config.Prefix}, as)
}

// sameRedis reports whether two sides have the same keys.
func sameRedis(ctx context.Context, a, b *redisconn.Conn) (bool, error) {
	var ids [2]string
	for i, side := range []*redisconn.Conn{a, b} {
		info, err := redisconn.Client(side).Info(ctx, "server").Result()
		if err != nil {
			return false, fmt.Errorf("read INFO: %w", redisconn.Unread(err))
		}
		ids[i] = redisconn.ParseInfo(info)["run_id"]
		if client, ok := redisconn.Client(side).(*redis.Client); ok {
			ids[i] += "/" + strconv.Itoa(client.Options().DB)
		}
	}
	return ids[0] == ids[1], nil
}

// state is what the first partition of a side says.
type state struct {
	layout, id, role string
	// exists says that there is a deployment, used that it has admitted a job or has a policy.
	exists, used bool
}

func read(ctx context.Context, of *redisconn.Conn) (state, error) {
	values, err := redisconn.ReadState(ctx, redisconn.Client(of), of.Partition, redisconn.LayoutField, migrationField, roleField, redisconn.DataField, "accepted", "pv").Result()
	if err != nil {
		return state{}, fmt.Errorf("read state: %w", redisconn.Unread(err))
	}
	found := state{layout: cmp.Or(redisconn.TextAt(values, 0), lua.SingleLayout), id: redisconn.TextAt(values, 1), role: redisconn.TextAt(values, 2)}
	if err := redisconn.CheckData(int(redisconn.Whole(redisconn.TextAt(values, 3)))); err != nil {
		return state{}, err
	}
	for i, value := range values {
		found.exists = found.exists || value != nil
		found.used = found.used || value != nil && i > 3
	}
	return found, nil
}

// begin finds out what is to be done, or how far an earlier run has come.
func (m *Migration) begin(ctx context.Context, here, there *redisconn.Conn, at state) error {
	before, after, migrating := strings.Cut(at.layout, ">")
	switch {
	case !at.exists:
		return fmt.Errorf("there is no deployment under %s", here.Partition.Base())
	case migrating && before == "":
		return &redisconn.LayoutError{Stored: at.layout}
	case migrating && at.role != m.role():
		return fmt.Errorf("%w, and is %q in that: end it first, with the same --from and --to", admission.ErrMigrating, at.role)
	case migrating && after != strconv.Itoa(m.config.Partitions):
		return fmt.Errorf("%w to %s partitions: end that first, with the same target", admission.ErrMigrating, after)
	}
	m.before, m.fenced, m.id = max(1, int(redisconn.Whole(before))), migrating, at.id
	if !m.inPlace {
		if err := m.checkTarget(ctx, there); err != nil {
			return err
		}
	} else if !migrating && m.before == m.config.Partitions {
		m.done = true
	}
	if m.id == "" || !migrating {
		m.id = uuid.NewString()
	}
	m.layout = strconv.Itoa(m.before) + ">" + strconv.Itoa(m.config.Partitions)
	return nil
}

// divide makes the stores of all partitions. The layout in force in them is that of the migration.
func (m *Migration) divide(ctx context.Context, from, to redis.UniversalClient) error {
	most := m.config.Partitions
	if m.inPlace {
		most = max(m.before, m.config.Partitions)
	}
	target, all, err := m.unchecked(ctx, to, redisconn.Division{Layout: m.layout, Parts: m.config.Partitions, Most: most})
	if err != nil {
		return err
	}
	m.target, m.to = target, partsOf(all)
	if m.from = m.to; !m.inPlace {
		if _, all, err = m.unchecked(ctx, from, redisconn.Division{Layout: m.layout, Parts: m.before, Most: m.before}); err != nil {
			return err
		}
		m.from = partsOf(all)
	}
	m.to = m.to[:m.config.Partitions]
	_, m.running, err = m.unchecked(ctx, from, redisconn.Division{Layout: strconv.Itoa(m.before), Parts: m.before, Most: m.before})
	return err
}

// checkTarget refuses another Redis that holds something else.
func (m *Migration) checkTarget(ctx context.Context, there *redisconn.Conn) error {
	if m.config.Target == "" {
		return &admission.FieldError{Field: "target", Value: `""`, Allowed: "the address of the Redis that the deployment moves to"}
	}
	at, err := read(ctx, there)
	if err != nil {
		return err
	}
	before, after, _ := strings.Cut(at.layout, ">")
	for i := 1; i < max(m.config.Partitions, int(redisconn.Whole(before)), int(redisconn.Whole(after))); i++ {
		other, err := read(ctx, there.At(keyspace.New(m.config.Prefix, i)))
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
		return fmt.Errorf("%w to another target than this one: end that first", admission.ErrMigrating)
	case at.used && !ours:
		return fmt.Errorf("the target holds another deployment under %s, or a part of one: give this another prefix, or flush that if nobody needs it", there.Partition.Base())
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
		if err := u.CheckPartitions(m.config.Partitions); err != nil {
			return err
		}
	}
	m.policy = &u
	return nil
}

// policyVersion returns the version in force in a partition and the edit that stored it.
func (p *partition) policyVersion(ctx context.Context) (version int64, edit string, err error) {
	values, err := redisconn.Client(p.conn).HMGet(ctx, p.conn.Partition.State(), "pv", "pe").Result()
	if err != nil {
		return 0, "", fmt.Errorf("read policy version: %w", redisconn.Unread(err))
	}
	return redisconn.Whole(redisconn.TextAt(values, 0)), redisconn.TextAt(values, 1), nil
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

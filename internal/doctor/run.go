package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Health is how a finding is.
type Health string

// The healths.
const (
	// HealthOK needs nothing.
	HealthOK Health = "ok"
	// HealthWarn works and bears a risk that the finding names.
	HealthWarn Health = "warn"
	// HealthFail breaks what Headgate promises, or will.
	HealthFail Health = "fail"
)

// Finding is one line of a Report.
type Finding struct {
	// Name is what was looked at, such as "persistence".
	Name   string `json:"name"`
	Health Health `json:"health"`
	// Text is what was found; Do what to do about it, empty where all is well.
	Text string `json:"text"`
	Do   string `json:"do,omitempty"`
}

// Report is what was found, in a fixed order, as it is shown over HTTP and by the command line with --json.
type Report struct {
	// Health is the worst of all findings.
	Health   Health    `json:"health"`
	Findings []Finding `json:"findings"`
}

// reportOf returns the report of at least one finding.
func reportOf(findings ...Finding) Report {
	r := Report{Health: HealthOK, Findings: findings}
	for _, f := range findings {
		if f.Health == HealthFail || f.Health == HealthWarn && r.Health == HealthOK {
			r.Health = f.Health
		}
	}
	return r
}

// Partition is a partition in Redis as the doctor looks at it.
type Partition interface {
	Conn() *redisconn.Conn
	Keys() keyspace.Partition
	Vitals(ctx context.Context) (store.Vitals, error)
	Counters(ctx context.Context) (store.Counters, error)
	Holds(ctx context.Context) ([]store.Hold, error)
	Scales(ctx context.Context) ([]store.Scale, error)
	SpillState(ctx context.Context) (store.SpillState, error)
	Policy(ctx context.Context) ([]byte, error)
	RecordTiers(ctx context.Context) (map[string]int64, error)
}

// Run looks at the Redis of a store, all masters of a cluster, and at what Headgate keeps there.
func Run(ctx context.Context, s store.Deployment) (Report, error) {
	var parts []Partition
	for _, part := range s.Partitions() {
		p, ok := part.(Partition)
		if !ok {
			return reportOf(Finding{
				Name: "version", Health: HealthWarn, Text: "this is a store inside a process: one process, nothing survives it",
				Do: "run Redis 7.0 or newer for anything but a demo",
			}), nil
		}
		parts = append(parts, p)
	}
	return Examine(ctx, parts)
}

// doctor gathers findings about a master, or about a partition.
type doctor struct {
	client    redis.UniversalClient
	part      Partition
	partition keyspace.Partition
	info      map[string]string
	now       time.Time     // of Redis
	ahead     time.Duration // how far the clock of Redis is ahead of this machine's
	roundTrip time.Duration
	findings  []Finding
}

// server looks at a master.
func (d *doctor) server(ctx context.Context) error {
	before := time.Now()
	now, err := d.client.Time(ctx).Result()
	if err != nil {
		return errors.Join(admission.ErrUnavailable, fmt.Errorf("redis does not answer TIME: %w", err))
	}
	d.roundTrip = time.Since(before)
	d.now, d.ahead = now, now.Sub(before.Add(d.roundTrip/2))
	info, err := d.client.Info(ctx).Result()
	if err != nil {
		return errors.Join(admission.ErrUnavailable, fmt.Errorf("redis does not answer INFO: %w", err))
	}
	d.info = redisconn.ParseInfo(info)
	d.version()
	d.role()
	d.eviction()
	d.memory()
	d.persistence(ctx)
	d.clock()
	return nil
}

func (d *doctor) add(name string, health Health, text, do string) {
	d.findings = append(d.findings, Finding{Name: name, Health: health, Text: text, Do: do})
}

func (d *doctor) number(field string) int64 {
	n, _ := strconv.ParseInt(d.info[field], 10, 64)
	return n
}

func (d *doctor) version() {
	version := d.info["redis_version"]
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	if err != nil || major < redisconn.MinMajor || major == redisconn.MinMajor && minor < redisconn.MinMinor {
		d.add("version", HealthFail, fmt.Sprintf("Redis %q", version), fmt.Sprintf("run Redis %d.%d or newer", redisconn.MinMajor, redisconn.MinMinor))
		return
	}
	name := "Redis " + version
	if valkey := d.info["valkey_version"]; valkey != "" {
		name = "Valkey " + valkey + ", which is as Redis " + version
	}
	d.add("version", HealthOK, name+", "+cmp.Or(d.info["redis_mode"], d.info["server_mode"]), "") // Valkey has the second from release 9 on.
}

func (d *doctor) role() {
	if role := d.info["role"]; role != "master" {
		d.add("replication", HealthFail, "this Redis is a "+role+" and refuses writes", "give the address of the master, "+d.info["master_host"]+":"+d.info["master_port"])
		return
	}
	if n := d.number("connected_slaves"); n > 0 {
		d.add("replication", HealthOK, fmt.Sprintf("a master with %d replicas; they follow a moment later, which a failover loses", n), "")
		return
	}
	d.add("replication", HealthOK, "a master without replicas", "")
}

func (d *doctor) eviction() {
	switch policy := d.info["maxmemory_policy"]; {
	case strings.HasPrefix(policy, "allkeys-"):
		d.add("eviction", HealthFail, "maxmemory-policy "+policy+": a full Redis deletes jobs", "CONFIG SET maxmemory-policy noeviction, and in redis.conf")
	case strings.HasPrefix(policy, "volatile-"):
		d.add("eviction", HealthWarn, "maxmemory-policy "+policy+": a full Redis forgets levels of limits, unique keys and results", "CONFIG SET maxmemory-policy noeviction, and in redis.conf")
	default:
		d.add("eviction", HealthOK, "maxmemory-policy "+policy+": a full Redis refuses new jobs and keeps those it has", "")
	}
}

// The parts of maxmemory from which memory is short: admit refuses above the second.
const (
	memoryWarn = 0.75
	memoryFull = 0.9
)

func (d *doctor) memory() {
	used, limit := d.number("used_memory"), d.number("maxmemory")
	switch {
	case limit == 0:
		d.add("memory", HealthWarn, size(used)+" used, no maxmemory: Redis grows until the machine ends it", "set maxmemory below what the machine has: above nine tenths of it jobs are refused, not lost")
	case float64(used) > memoryFull*float64(limit):
		d.add("memory", HealthFail, size(used)+" of "+size(limit)+" used: jobs are refused", "raise maxmemory, or let workers catch up, or purge dead letters")
	case float64(used) > memoryWarn*float64(limit):
		d.add("memory", HealthWarn, size(used)+" of "+size(limit)+" used; jobs are refused from nine tenths on", "raise maxmemory, or let workers catch up, or purge dead letters")
	default:
		d.add("memory", HealthOK, size(used)+" of "+size(limit)+" used", "")
	}
}

const keepMore = "CONFIG SET appendonly yes and appendfsync everysec (or always), and in redis.conf"

// afterCrash is what keeps the next start from carrying out half a transaction that a crash has left in the file.
const afterCrash = ", if BGREWRITEAOF follows it"

// persistence names what a crash may lose.
func (d *doctor) persistence(ctx context.Context) {
	sync, _ := d.setting(ctx, "appendfsync")
	save, told := d.setting(ctx, "save")
	if d.info["aof_enabled"] == "1" {
		switch {
		case d.info["aof_last_write_status"] == "err":
			d.add("persistence", HealthFail, "the append-only file cannot be written: Redis refuses writes, or loses them in a crash", "look at the disk and at the log of Redis")
		case sync == "always":
			d.add("persistence", HealthOK, "append-only file, appendfsync always: a crash loses no job that was acknowledged"+afterCrash, "")
		case sync == "everysec":
			d.add("persistence", HealthOK, "append-only file, appendfsync everysec: a crash of the machine loses up to 2 seconds of acknowledged jobs, one of Redis alone none"+afterCrash, "")
		case sync == "no":
			d.add("persistence", HealthWarn, "append-only file, appendfsync no: a crash of the machine loses what its kernel has not written, some 30 seconds of acknowledged jobs", "CONFIG SET appendfsync everysec (or always), and in redis.conf")
		default:
			d.add("persistence", HealthWarn, "append-only file; this Redis does not tell appendfsync", "make sure that it is everysec or always")
		}
		return
	}
	since := d.now.Sub(time.Unix(d.number("rdb_last_save_time"), 0)).Round(time.Second)
	switch {
	case d.info["rdb_last_bgsave_status"] == "err":
		d.add("persistence", HealthFail, fmt.Sprintf("the last snapshot failed: a crash loses all since the one %s ago", since), "look at the disk and at the log of Redis")
	case save == "":
		text := "neither append-only file nor snapshots: a crash or a restart loses every acknowledged job"
		if !told {
			text = "no append-only file; this Redis does not tell whether it takes snapshots: a crash loses at least all acknowledged jobs since the last one"
		}
		d.add("persistence", HealthWarn, text, keepMore)
	default:
		d.add("persistence", HealthWarn, fmt.Sprintf("snapshots only (save %s): a crash loses every acknowledged job since the last one, now %.0f seconds", save, since.Seconds()), keepMore)
	}
}

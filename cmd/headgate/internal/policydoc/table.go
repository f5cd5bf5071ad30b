package policydoc

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// part is the pattern of a name, as package admission has it; no tenant is called global.
const (
	part     = `[A-Za-z0-9._@/-]{1,128}`
	noTenant = `^global(:|$)`
)

var (
	anyName       = name{`^` + part + `$`, "", "1 to 128 bytes of `A-Za-z0-9._@/-`"}
	orAny         = name{`^(` + part + `|\*)$`, "", "queue or `*`"}
	tierName      = name{`^` + part + `$`, "", "tier"}
	jobType       = name{`^([A-Za-z0-9._:@/-]{1,128}|\*)$`, "", "type or `*`"}
	className     = name{`^` + part + `$`, "", "class"}
	semaphoreName = name{`^(` + part + `:)?(` + part + `|\*)$`, `^global:`, "semaphore, `tenant:semaphore`, `tenant:*` or `*`"}
	dimensionName = name{`^[A-Za-z0-9._-]{1,` + strconv.Itoa(policy.MaxDimensionName) + `}$`, "", "dimension"}
	dimensionKey  = name{`^[A-Za-z0-9._@/-]{1,64}$`, "", "value"}
	prefixLength  = name{`^/[0-9]{1,3}$`, "", "`/1` to `/32` of IPv4, `/1` to `/128` of IPv6"}
	signal        = name{`^(wait|depth|slots|run_p95|failed|cpu|memory|redis_memory)$`, "", "`wait`, `depth`, `slots`, `run_p95`, `failed`, `cpu`, `memory`, `redis_memory`"}
	levelName     = name{`^(LOW|MEDIUM|HIGH|CRITICAL)$`, "", "`LOW`, `MEDIUM`, `HIGH`, `CRITICAL`"}
	shed          = name{`^` + part + `(:` + part + `){0,2}$`, "", "`class` or `class:tier`, with `:over` behind it for tenants over their share"}
	downstream    = name{`^` + part + `$`, "", "downstream"}
	called        = name{`^` + part + `(\+(` + part + `|\*))?$`, "", "downstream, `service+account` or `service+*`"}
	tenantName    = name{`^` + part + `$`, noTenant, "tenant"}
	inQueue       = name{`^` + part + `:` + part + `$`, noTenant, "`tenant:queue`"}
	inClass       = name{`^` + part + `:` + part + `:` + part + `$`, noTenant, "`tenant:queue:class`"}
	bounded       = name{`^(\*|\*:\*|` + part + `(:` + part + `)?)$`, noTenant, "`tenant:queue`, `*:*`, `tenant` or `*`"}
	moved         = name{`^(global|(downstream|queue) ` + part + `)$`, "", "`downstream NAME`, `global` or `queue NAME`"}
	anyScope      = name{`^` + part + `(:` + part + `){0,2}$|^` + part + `:` + part + `:type=[A-Za-z0-9._:@/-]{1,128}$`, `^global:`, "`global`, `tenant`, `tenant:queue`, `tenant:queue:class` or `tenant:queue:type=TYPE`"}
	limit         = of("limit")
	rate          = without{limit, "window"}
	window        = name{`^(` + admission.WindowMonth + `|` + spanPattern[1:len(spanPattern)-1] + `)$`, "", "1s to 31 days (744h) in whole seconds, or `month`"}
	timeOfDay     = name{`^([01][0-9]|2[0-3]):[0-5][0-9]$`, "", "`00:00` to `23:59`"}
	zone          = name{`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`, "", "a name of the IANA database, such as `Europe/Berlin`"}
	tokens        = whole{low: 1, high: int64(admission.MaxLimitTokens)}
	running       = whole{low: 1, high: policy.MaxMaxRunning, zero: true}
	calls         = whole{low: 1, high: 1_000_000, zero: true}
	weights       = named{keys: className, value: whole{low: 1, high: int64(admission.MaxWeight)}}
	overDay       = span{time.Millisecond, 24 * time.Hour}
	overHour      = span{time.Millisecond, time.Hour}
	weightsDoc    = "Shares of the tenant among the tenants of a class: twice the weight is twice the service while both have work."
)

// objects are the document itself and what it is made of.
var objects = []object{
	{
		name: "", title: "Policy",
		doc: "Which limits, weights and bounds are in force for whom. `headgate policy set FILE` stores one as JSON.",
		fields: append([]field{
			{"version", whole{low: 0, high: 1<<53 - 1}, "whatever version is in force is replaced, unless settings would be lost", "The version that the document was made from. Where another one is in force by now, nothing is stored."},
			{"global", limit, "no limit", "Limit of the whole deployment. Every job and every check pays here, then at its tenant, queue and class, a job at its type, too."},
			{"global_reserved", of("global_reserved"), "nothing is kept", "A part of `global` that only some classes may take."},
			{"bypass", of("bypass"), "nothing goes beside a limit", "Classes whose jobs go beside the limits of their queue, class and type, within bounds."},
		}, append(ruleFields(named{tierName, of("tier"), []string{policy.StandardTier}}, "the three of the built-in policy: premium 400 tokens a second (burst 100), standard 200 (50), basic 100 (25)"),
			field{"queues", named{keys: orAny, value: of("queue")}, "every queue goes by the defaults", "Queues that have something of their own. `*` is each queue that is not named here: it has neither `max_running`, `max_running_per_tenant` nor `pressure`, and a `reserved` there keeps no slots."},
			field{"downstreams", named{keys: called, value: of("downstream")}, "all go by `any_downstream`", "Downstreams, which jobs name as what they call, that have something of their own. `service+*` is each account of a service, `service+account` one of them: [Accounts of a service](guides/breakers.md#accounts-of-a-service)."},
			field{"any_downstream", without{"downstream", "dispatch"}, "no bounds", "What holds for each downstream that is not named. A `dispatch` is refused here."},
			field{"adaptive", named{keys: anyName, value: of("adaptive")}, "no limit moves", fmt.Sprintf("Limits that move by themselves, up to %d, each by a name of your choice.", policy.MaxAdaptive)},
			field{"triggers", named{keys: anyName, value: of("trigger")}, "nothing is done", fmt.Sprintf("What is done by itself while something that is measured is beyond a bound, up to %d, each by a name of your choice.", policy.MaxTriggers)},
			field{"shedding", of("shedding"), "nothing is refused for pressure", "What is refused while a queue that has a `pressure` is pressed."},
			field{"anomalies", of("anomalies"), "nobody looks", "Has rates watched: of those that are not usual `headgate anomaly list` tells, and `--notify`. `{}` is enough."},
			field{"load", of("load"), "nobody tells", "Has workers tell how busy they are, for `headgate load` and its history. `{}` is enough."},
			field{"semaphores", named{keys: semaphoreName, value: of("semaphore")}, fmt.Sprintf("%d permits of each", policy.DefaultSemaphoreMax), fmt.Sprintf("Semaphores, up to %d: limits of what is done at a time outside of jobs. By name, `TENANT:NAME` for one of a tenant; `*` is each that is not named, `TENANT:*` each of a tenant. [Semaphores](guides/semaphores.md) tells how.", policy.MaxSemaphores)},
			field{"dimensions", named{keys: dimensionName, value: of("dimension")}, "none", fmt.Sprintf("Limits beside the hierarchy, up to %d by name: of each user, address, route or model that a check names, which passes if its way and all of them have the tokens. [Limits of HTTP servers](guides/http.md#users-addresses-routes-dimensions) tells how.", policy.MaxDimensions)},
			field{"observe", list{0, policy.MaxObserved, anyScope}, "none", "Scopes whose decisions are always counted; others are while they are among the busiest, those of types of jobs where these have a limit."},
			field{"usage", of("usage"), "none is kept", "Usage is kept by tenant, queue and day (UTC), for 35 days: `headgate usage` shows it. `{}` is enough. What this costs is told in [costs](guides/costs.md#usage)."},
			field{"reservations", of("reservations"), "a minute", "For how long the cost of reservations may be told. [Costs](guides/costs.md#calls-without-a-job) tells how."},
			field{"tenant_records", toggle{}, "`false`", "Lets single tenants have a tier, weights, caps, a rate of dispatches, bounds of depth, limits and limits of semaphores beside the policy, each in a record of its own, before what the policy says: `headgate record`. It stays `true` while there are any. [Records of tenants](#records-of-tenants)."},
			field{"rollout", of("rollout"), "none", "A candidate that is in force for a part of the tenants. `headgate policy rollout` writes it."},
			field{
				"dedup_window",
				span{policy.MinDedupWindow, policy.MaxDedupWindow},
				"30s",
				"How long at least the id of a job is remembered after the job has ended: sent again meanwhile, it is a duplicate.",
			},
			field{"$schema", text{}, "no matter", "Where an editor finds the schema of the file. It is not kept."},
		)...),
	},
	{
		name: "limit", title: "limit",
		doc: "A token bucket: `tokens` come in evenly over `per`, and `burst` is the most that it holds. A job costs one token unless it says otherwise. " +
			"The rate is `tokens` with `per`, or `rate_per_second`; the burst is `burst` or `burst_capacity`, or without either what comes in a second, rounded up. An empty bucket has to fill within 366 days. " +
			"Or, with `algorithm` `fixed_window`, a quota: `tokens` in each `window`, all of them there as it begins ([quotas](guides/limits-and-tiers.md#quotas-by-the-calendar)); " +
			"or, with `sliding_window` and `sliding_log`, `tokens` in every time as long as a `window` ([sliding windows](guides/limits-and-tiers.md#windows-that-slide)); " +
			"`per`, `burst`, `rate_per_second` and `burst_capacity` are refused with windows.",
		fields: []field{
			{"algorithm", choice(policy.Algorithms), "`" + policy.TokenBucket + "`", "How tokens come back: evenly; all at once as a window begins; or each when it was taken a window ago, counted by tenths of the window, or by a log to the microsecond (1,000 `tokens` at most: 11 kB). `leaky_bucket` is a token bucket whose `burst` is 1 unless it says another: [waiting](guides/limits-and-tiers.md#waiting-in-the-place-of-a-refusal)."},
			{"tokens", tokens, "`rate_per_second` has to be there", "Tokens that come in over `per`, or that each `window` has."},
			{"window", window, "refused with windows", "How long a window is. Whole days and months of `fixed_window` go by the calendar of `zone`: where clocks change a day has 23 or 25 hours. A week (`168h`) begins on Monday."},
			{"anchor", timeOfDay, "`00:00`", "The time of day at which a window of `fixed_window` begins."},
			{"zone", zone, "`UTC`", "The zone of `anchor`; other than UTC for a `window` of whole days or a month alone."},
			{"per", span{admission.MinLimitPer, admission.MaxLimitPer}, "`rate_per_second` has to be there", "The time over which `tokens` come in."},
			{"burst", tokens, "what comes in a second, rounded up: 9 of 500 a minute", "Tokens that the bucket holds at most. A job that costs more is refused for good."},
			{"rate_per_second", tokens, "`tokens` and `per` have to be there", "Tokens that come in a second, instead of `tokens` and `per`."},
			{"burst_capacity", tokens, "that of `burst`", "Another name of `burst`."},
			{"enabled", toggle{}, "`true`", "`false` says that there is no limit here; the figures may stay."},
		},
		rule: limitRule,
	},
	{
		name: "tier", title: "tier", doc: "Defaults for the tenants that are in it. They share the figures, not the tokens: each has a bucket of its own.",
		fields: []field{
			{"limit", limit, "the tier is refused: one without a limit says `{\"enabled\": false}`", "Limit of each of its tenants."},
			{"priority_weights", weights, "1 in each class", weightsDoc},
			{"max_running", running, "no bound", "Most jobs of each of its tenants that workers hold at a time, over all workers. Others wait."},
			{"overflow", of("overflow"), "that of `*` in `overflows`", "How many jobs each of its tenants may have over all its queues; `none` or `reject` only."},
			{"queues", named{keys: orAny, value: of("tier_queue")}, "what queues say of each tenant", "What each of its tenants has in a queue; `*` is each queue of which nothing nearer is said ([which one holds](#which-one-holds))."},
		},
		needs: []string{"limit"},
	},
	{
		name: "tier_queue", title: "tier_queue", doc: "What each tenant of a tier has in a queue. They share the figures, not the tokens.",
		fields: append(slices.Clone(eachFields),
			field{"overflow", of("overflow"), "that of the queue", "How many jobs each of its tenants may have waiting in the queue, and what becomes of others."}),
	},
	{
		name: "tenant", title: "tenant", doc: "What one tenant has of its own.",
		fields: []field{
			{"tier", anyName, "`standard`", "Tier whose limit, weights and bound it has where it has none of its own."},
			{"limit", limit, "that of its tier", "Limit of the tenant, instead of its tier's. `{\"enabled\": false}` lifts that."},
			{"priority_weights", weights, "those of its tier, class by class", weightsDoc},
			{"max_running", running, "that of its tier", "Most jobs of the tenant that workers hold at a time, over all workers. Others wait."},
			{"dispatch", rate, "no bound", "How many of its jobs are handed to workers in a time, a token each whatever they cost. Others wait; none is refused for it."},
			{"queues", named{keys: anyName, value: of("tenant_queue")}, "what its tier and queues say", "What it has in single queues, beside `queue_limits` and `priority_limits`."},
		},
	},
	{
		name: "tenant_queue", title: "tenant_queue", doc: "What one tenant has of its own in a queue. Limits of the queue and of its classes are in `queue_limits` and `priority_limits`.",
		fields: []field{typeLimits},
	},
	{
		name: "queue", title: "queue", doc: "What one queue has of its own.",
		fields: []field{
			{"classes", list{1, admission.MaxClasses, of("class")}, "high 3, medium 2, low 1", "Classes of urgency, the most urgent first."},
			{"horizon", span{policy.MinHorizon, policy.MaxHorizon}, "1h", "Places jobs without a deadline among those of their tenant with one, as if theirs were this long after their arrival."},
			{"expired_policy", choice{string(policy.DeadLetter), string(policy.Drop)}, "`dead_letter`", "What becomes of a job that did not start before its deadline: kept as a dead letter, or forgotten. It is counted either way."},
			{"max_wait", span{policy.MinMaxWait, policy.MaxMaxWait}, "no bound", "Longest that a job may wait from its arrival, or its own time, on, also while something holds it back; then it expires."},
			{
				"doomed_percent",
				whole{policy.MinDoomedPercent, policy.MaxDoomedPercent, true},
				"none is refused for it",
				"Refuses a job on arrival, with the reason `doomed`, whose predicted wait is above so many percent of what it may wait by its deadline or `max_wait`. [Overload](guides/overload.md#what-would-start-too-late) tells how.",
			},
			{"poison_limit", whole{1, policy.MaxPoisonLimit, true}, "3", "Workers that may be lost while they are known to run a job; then the job is a dead letter."},
			{"keep_dead", span{policy.MinKeepDead, policy.MaxKeepDead}, "as long as `max_dead` allows", "How long a dead letter is kept."},
			{"max_dead", whole{1, policy.MaxMaxDead, true}, "100,000", "Most dead letters. Beyond, the oldest of the tenant that has the most go."},
			{"each_tenant", of("each_tenant"), "no limits", "What each tenant has in the queue."},
			{"overflow", of("overflow"), "no bound", "How many jobs each tenant may have waiting in the queue, and what becomes of others."},
			{"max_running", running, "no bound", "Most jobs of the queue that workers hold at a time, over all workers. Others wait."},
			{"max_running_per_tenant", running, "no bound", "Most jobs of each tenant in the queue that workers hold at a time, over all workers. Others wait."},
			{"reserved", of("reserved"), "none", "Slots that only some of its classes may take."},
			{"most_attempts", whole{1, admission.MaxAttemptsLimit, true}, "25", "Most runs that a job may ask for. One that asks for more is refused."},
			{"least_backoff", span{time.Millisecond, admission.MaxBackoff}, "100ms", "Least wait after a failed run that a job's own header `headgate-backoff` may ask for."},
			{"pressure", of("pressure"), "it is not measured", "How it is measured how much the queue is pressed."},
			{"reservations", of("reservations"), "that of the policy", "For how long the cost of reservations in the queue may be told."},
		},
	},
	{
		name: "each_tenant", title: "each_tenant", doc: "What each tenant has in a queue. They share the figures, not the tokens: each has buckets of its own.",
		fields: eachFields,
	},
	{
		name: "class", title: "class", doc: "A class of urgency of a queue.",
		fields: []field{
			{"name", anyName, "refused", "Name of the class, as jobs have it in their priority."},
			{"weight", whole{low: 1, high: admission.MaxClassWeight}, "refused", "Its turns in the pattern by which classes are served: 3, 2 and 1 are HHHMML."},
		},
		needs: []string{"name", "weight"},
	},
	{
		name: "overflow", title: "overflow",
		doc: "A bound on the jobs of a tenant that live: waiting, for later or running; dead letters and spilled ones apart. `max_jobs`, `max_bytes` or both are needed beside a policy other than `none`.",
		fields: []field{
			{
				"policy",
				choice{string(policy.NoBound), string(policy.Reject), string(policy.DropOldest), string(policy.Spillover)},
				"`none`",
				"What becomes of a job for which there is no room. `reject` refuses it; `drop_oldest` makes a dead letter of the tenant's oldest waiting job, never of a class above the newcomer's; " +
					"`spillover` keeps it aside and brings it back in order; `none` lets it in. Over all queues of a tenant only `none` and `reject` may be.",
			},
			{"max_jobs", whole{1, policy.MaxOverflowJobs, true}, "no bound", "Most jobs."},
			{"max_bytes", whole{1, policy.MaxOverflowBytes, true}, "no bound", "Most bytes of jobs as they are stored: payload, headers, names and some 40 bytes."},
			{"max_spilled", whole{1, policy.MaxMaxSpilled, true}, "10,000", "Most jobs that are kept aside; with `spillover` alone."},
			{
				"spill_to",
				choice{policy.SecondRedis},
				"nowhere",
				"Where those go on to that wait behind the first half of `max_spilled`, and come back from before their turn: `second` is the Redis of `redis.spill_url` in the processes' configuration; with `spillover` alone, and a `max_spilled` of 2 at least. " +
					"[What it costs and promises](guides/limits-and-tiers.md#a-second-redis-for-what-is-kept-aside).",
			},
			{"max_moved", whole{1, policy.MaxMaxMoved, true}, "100,000", "Most jobs whose bodies are there, beside `max_spilled` here; with `spill_to` alone."},
			{"low_water_percent", whole{1, 100, true}, "50", "Per cent of the bounds at which spilled jobs begin to come back; with `spillover` alone."},
		},
		rule: overflowRule,
	},
	{
		name: "downstream", title: "downstream", doc: "What holds for the jobs that call one downstream. An account of a service has `max_running`, `dispatch` and `max_retry_after`; what it leaves out is what `service+*` says.",
		fields: []field{
			{"max_running", running, "no bound", "Most of its jobs that workers hold at a time, over all workers. Others wait."},
			{"dispatch", rate, "no bound", "How many of its jobs are handed to workers in a time, a token each whatever they cost, over all workers. Others wait; none fails for it."},
			{"max_parked", whole{1, policy.MaxOverflowJobs, true}, "no bound", "Most jobs that may wait for it while its circuit breaker is not closed. Others are refused."},
			{"breaker", of("breaker"), "that of the workers' configuration", "By which rules its circuit breaker goes, for all workers."},
			{"max_retry_after", span{time.Second, policy.MaxMaxRetryAfter}, "that one job waits", "For how long at most all workers hold its jobs back when it answers 429 with `Retry-After`. [Adaptive limits](guides/adaptive-limits.md#a-receiver-that-says-when) tells how."},
		},
	},
	{
		name: "breaker", title: "breaker",
		doc: "Rules of a circuit breaker. Those that are left out are the defaults here, not what a worker says.",
		fields: []field{
			{"window", span{10 * time.Millisecond, time.Hour}, "10s", "How long the outcome of a call counts."},
			{"buckets", whole{1, 100, true}, "10", "Slices in which the window slides."},
			{"min_calls", calls, "10", "Fewest calls in the window by which a rate is judged."},
			{"failure_rate", share{}, "0.5", "Part of the calls in the window whose failure opens the breaker."},
			{"failure_threshold", calls, "10", "Failures in a row that open it, whatever the window holds."},
			{"slow_call_duration", overDay, "30s", "What a call has to last to be slow. It counts while it still runs."},
			{"slow_call_rate", share{}, "0.8", "Part of slow calls in the window that opens it."},
			{"success_threshold", whole{1, 1000, true}, "5", "Probes that have to pass before it closes."},
			{"max_probes", whole{1, 100, true}, "1", "Most probes under way at a time."},
			{"probe_timeout", overHour, "30s", "After which time a probe that has not ended counts as failed."},
			{"open_base", overDay, "1m", "How long it stays open the first time, less a jitter of up to half. Each further time in a row doubles it."},
			{"open_max", overDay, "10m, or `open_base` if that is longer", "Longest that it stays open, before jitter. Not below `open_base`."},
			{"reset_after", overDay, "10m", "How long it has to stay closed for the next time to be `open_base` again."},
			{"call_timeout", span{time.Millisecond, admission.MaxTimeout}, "that of the worker", "Ends the ctx of a handler whose job has no time-out of its own."},
		},
	},
	{
		name: "adaptive", title: "adaptive",
		doc: "Lets the `max_running` or the `dispatch` of a downstream move by itself, between `min` and `max`; or how much of the global limit, or of all limits that name a queue, is in force. [Adaptive limits](guides/adaptive-limits.md) tells how.",
		fields: []field{
			{"of", moved, "refused", "Whose limit: one of `downstreams`, which has what `moves` names; `global`; or a queue with a `pressure`, all of whose limits by tenant and class it is then. Each limit has one at most that moves it."},
			{
				"moves",
				choice{policy.MovesMaxRunning, policy.MovesDispatch},
				"`max_running`",
				"Which limit: `max_running` moves by run times and failures, `dispatch` by how many calls the receiver refuses as too many, or by a `signal`. `max_run_time`, `max_failures` and `target_run_time` are of the former alone, and without a `signal` `controller`, `kp`, `ki` and `kd`.",
			},
			{
				"controller",
				choice{string(policy.Gradient), string(policy.AIMD), string(policy.PID), string(policy.Health)},
				"`gradient`; of `global` and of a queue `pid`",
				"`gradient` looks for the limit from which on throughput grows no more. `aimd` grows until calls take longer than `max_run_time` or more than `max_failures` of them fail, and cuts. `pid` holds how long calls take at `target_run_time`; of `global` and of a queue the pressure at `target_pressure`, as does `aimd` there, by a tenth down and 2 % of the most up. `health`, of those alone, halves what is in force while 1 less the pressure is below 0.3, and brings it back by fifths above 0.8.",
			},
			{"min", whole{low: 1, high: policy.MaxMaxRunning}, "refused", "Below which it never goes: jobs at a time, jobs in the `per` of the `dispatch`, or percent of what the policy says."},
			{"max", whole{1, policy.MaxMaxRunning, true}, "the downstream's own, or 100", "Above which it never goes; not above the downstream's own."},
			{"interval", span{policy.MinAdaptiveInterval, policy.MaxAdaptiveInterval}, "5s, by a `signal` of the last minute 1m, by the `pressure` of a downstream the `window` of its `breaker`", "How often it is looked. Several times as long as a job runs. By a `signal` of the last minute 30s at least, by the `pressure` of a downstream half of that `window`, which is 10s where the policy does not say."},
			{"max_run_time", overDay, "no bound", "How long calls may take in the mean. Above, the limit is cut by as much, at most to half at a time."},
			{"max_failures", share{}, "0.25", "Part of the calls that may fail. Above, the limit is cut by a fifth."},
			{"target_run_time", overDay, "refused for `pid`", "How long calls are to take in the mean, of `pid` without a `signal` alone; below `max_run_time`, if there is one."},
			{"kp", gains{}, "0.5, of `wait_p95` 0.1, there of a downstream 0.3", "By which part of the limit `pid` moves for what is off by all of its target. Without any of `kp`, `ki` and `kd` all three are as told here; with one, those that are not there are 0."},
			{"ki", gains{}, "0.1, of `wait_p95` 0", "By which more for each interval that it has been off."},
			{"kd", gains{}, "0.2, of `wait_p95` 2", "By which less for each change in an interval by all of the target."},
			{"target_pressure", between{policy.MinTargetPressure, policy.MaxTargetPressure}, "0.6", "The score at which `pid` or `aimd` holds the queue, or of all that have a `pressure` the one that is pressed most. Of `global` and of a queue alone."},
			{"min_change_interval", span{time.Second, policy.MaxMinChange}, "30s of `health`, none of the others", "How long it is at least from one change to the next. Of `global` and of a queue alone."},
			{"signal", choice(policy.AdaptiveSignals), "run times; of `global` and of a queue the pressure", "By what `pid`, which is the default then, or `aimd` moves it instead: how long all but one in twenty runs took (`run_p95`) or jobs waited (`wait_p95`) and which part of the runs failed (`error_rate`), of the last minute, `cpu` of the worker that uses most, or the score of `pressure`. Of `global` the most of any queue. Of a downstream `wait_p95` is of jobs that call it, and has the limit grow above the target; `pressure` is how near its circuit breaker is to opening. `pressure` of a queue needs a `pressure` there, all else a `load`."},
			{"target", between{0.001, 300}, "refused with a `signal`", "Where `signal` is held: seconds of `run_p95` and `wait_p95`, else a part of 1, 0.001 to 0.95 of `error_rate`, which is below `max_failures`, 0.05 to 0.95 of `cpu` and `pressure`. `aimd` grows up to it and cuts above: `max_running` by a tenth to a fifth, all else by a tenth."},
			{"depends_on", list{0, policy.MaxDependsOn, downstream}, "nothing", "Downstreams: when the circuit breaker of one opens, the limit is halved within a second, and does not grow while it is open."},
			{"protect", named{keys: tierName, value: of("protection")}, "all are cut alike", "Tiers whose tenants are cut last, of a queue alone: nothing of theirs before the limits of all others there are at `min`. [Adaptive limits](guides/adaptive-limits.md#who-is-cut-last) tells how."},
		},
		needs: []string{"of", "min"},
	},
	{
		name: "protection", title: "protection",
		doc:    "How far limits of a protected tier's tenants are cut.",
		fields: []field{{"min", whole{low: 1, high: 100}, "refused", "Below which they never go: percent of what the policy says."}},
		needs:  []string{"min"},
	},
	{
		name: "trigger", title: "trigger",
		doc: "Does something while what is measured is beyond a bound, and ends it when it is not any more. It needs a `load`. [Triggers](guides/triggers.md) tells how.",
		fields: []field{
			{"when", of("trigger_when"), "refused", "By which value it begins."},
			{"do", choice(policy.TriggerActions), "refused", "`reduce_limit` makes a limit less by a part, `pause` dispatches no job of a queue or to a downstream, `suspend` refuses jobs that come to a queue, `shed` has the pressure of a queue be a level at least."},
			{"of", moved, "refused", "To what: the limit, the queue or the downstream. `reduce_limit` is of `global`, a queue that has limits, or one of `downstreams`; `suspend` and `shed` are of a queue, which for `shed` has a `pressure`."},
			{"moves", choice{policy.MovesMaxRunning, policy.MovesDispatch}, "`max_running`", "Which limit of a downstream `reduce_limit` is about."},
			{"by", between{-policy.MaxCut, -policy.MinCut}, "refused for `reduce_limit`", "By which part `reduce_limit` makes the policy's limit less: -0.2 leaves four fifths."},
			{"level", levelName, "`HIGH`", "The level of `shed`."},
			{"until", of("trigger_until"), "where `when` holds no more, for as long", "By which value it ends; of the bound of `when` also at it. What nobody knows any more ends it, too."},
			{"priority", whole{1, policy.MaxTriggerPriority, true}, strconv.Itoa(policy.DefaultTriggerPriority), "Which of several counts that reduce one limit: the highest, of equal ones the one that leaves least. They do not add up."},
			{"enabled", toggle{}, "`true`", "Whether it acts."},
		},
		needs: []string{"when", "do", "of"},
	},
	{
		name: "trigger_when", title: "trigger_when",
		doc: "A value that is beyond a bound at each look, once a second, for a time. One of `above` and `below` has to be there. Times are seconds, parts 0 to 1.",
		fields: []field{
			{"metric", choice(policy.TriggerMetrics), "refused", "`wait` is how long the waiting jobs take at the pace of now, `wait_p95` how long all but one in twenty have waited whose run began in the last minute, `backpressure_level` 1 (NONE) to 5, `redis_memory` a part of `maxmemory`, `breaker_state` 0 closed, 1 half-open and 2 open. [Load](guides/load.md) has the others."},
			{"of", moved, "`of` of the trigger where that does, else `global`", "Whose: a queue; `global`, the most of any queue, of depths the sum; or a downstream for its `breaker_state`, and for the `error_rate`, `run_p95` and `wait_p95` of jobs that call it."},
			{"above", between{0, policy.MaxTriggerBound}, "not above", "What it has to be more than."},
			{"below", between{0, policy.MaxTriggerBound}, "not below", "What it has to be less than."},
			{"for", span{policy.MinTriggerFor, policy.MaxTriggerFor}, "30s", "For how long."},
		},
		needs: []string{"metric"},
	},
	{
		name: "trigger_until", title: "trigger_until",
		doc: "As `when`, on the other side of its bound: what begins `above` one ends `below` it, or below one that is less.",
		fields: []field{
			{"above", between{0, policy.MaxTriggerBound}, "by `when`", "What it has to be more than."},
			{"below", between{0, policy.MaxTriggerBound}, "by `when`", "What it has to be less than."},
			{"for", span{policy.MinTriggerFor, policy.MaxTriggerFor}, "that of `when`", "For how long."},
		},
	},
	{
		name: "global_reserved", title: "global_reserved",
		doc: "A part of the `global` limit that only jobs and checks of some classes may take. All others, those that name no class among them, are charged to a second bucket as well, which they share: it has `percent` less of the rate and of the burst. [Overload](guides/overload.md#a-part-of-the-global-limit-for-what-is-urgent) tells how.",
		fields: []field{
			{"classes", list{1, admission.MaxClasses, className}, "refused", "Classes that may take all of it, of whatever queue."},
			{"percent", whole{1, policy.MaxReservedPercent, false}, "refused", "How many percent of it are kept for them. A token of the burst has to be left to others."},
			{"lend", toggle{}, "`false`", "Lets others have all that comes in, as long as they leave `percent` of the burst in the global bucket. Of a token bucket alone."},
		},
		needs: []string{"classes", "percent"},
	},
	{
		name: "bypass", title: "bypass",
		doc: "Classes whose jobs go beside the limits of their tenant's queue, class and type: of these only `global` and the tenant's are charged. What is beyond a tenant's share goes the way of all, and so do checks. [Overload](guides/overload.md#what-goes-beside-a-limit) tells how.",
		fields: []field{
			{"classes", list{1, admission.MaxClasses, className}, "refused", "Classes of whatever queue. Where there is a `global_reserved` they are among its classes."},
			{"reserve_percent", whole{0, 100, false}, "0", "How far below zero they may take the `global` bucket, in percent of its burst. Of a token bucket alone."},
			{"share_percent", whole{1, 100, true}, strconv.Itoa(policy.DefaultSharePercent), "How many percent of its own limit, rate and burst, a tenant may have go that way. Without a limit, or where that is less than a token of the burst, it has nothing go that way."},
		},
		needs: []string{"classes"},
	},
	{
		name: "reserved", title: "reserved",
		doc: "Slots of a queue, over all its workers and within its `max_running`, that only some of its classes may take. Jobs of the others run on as many as are left, and on " +
			"one at least. `slots` or `percent` has to be there. [Overload](guides/overload.md#slots-for-what-is-urgent) tells how.",
		fields: []field{
			{"classes", list{1, admission.MaxClasses - 1, className}, "refused", "Classes of the queue that may take them, not all."},
			{"slots", whole{1, policy.MaxMaxRunning, false}, "by `percent`", "How many."},
			{"percent", whole{1, policy.MaxReservedPercent, false}, "by `slots`", "How many percent of all, rounded up."},
			{"lend", toggle{}, "`false`", "Lets others take them while no job of `classes` waits that may run. One that comes later has to wait until a job ends."},
		},
		needs: []string{"classes"},
	},
	{
		name: "pressure", title: "pressure",
		doc: "How it is measured how much a queue is pressed: a score of 0 to 1, and a level, NONE, LOW from 0.5, MEDIUM from 0.7, HIGH from 0.85, CRITICAL from 0.95. " +
			"`target_wait` or `max_depth` has to be there. [Overload](guides/overload.md) tells how.",
		fields: []field{
			{"target_wait", span{time.Millisecond, policy.MaxTargetWait}, "the wait does not count", "Longest wait wanted of a job that comes now. As long a wait counts as 1."},
			{"max_depth", whole{1, policy.MaxOverflowJobs, true}, "the depth does not count", "Most waiting jobs wanted. As many count as 1."},
			{
				"weights",
				named{keys: signal, value: share{}},
				"wait 0.7 and depth 0.3, or the one that is bounded alone",
				"How much each counts. They add up to 1. `slots` is the part of the workers' slots that has a job, `redis_memory` the part of its `maxmemory` that Redis uses, unknown without one, `cpu` and `memory` what the worker uses that uses most. These two, `run_p95` and `failed` need a `load`.",
			},
			{"target_run", span{time.Millisecond, policy.MaxTargetWait}, "run times do not count", "How long all but one in twenty runs may take. As long counts as 1, with the weight of `run_p95`."},
			{"max_failed", share{}, "failed runs do not count", "Part of the runs that may fail. As many count as 1, with the weight of `failed`."},
			{"interval", span{policy.MinAdaptiveInterval, policy.MaxAdaptiveInterval}, "1s", "How often it is measured."},
		},
	},
	{
		name: "shedding", title: "shedding",
		doc: "Which jobs are refused, with the reason `shed`, while a queue that has a `pressure` is pressed: the least class first, in it the least tier, in that tenants over their share. [Overload](guides/overload.md) tells how.",
		fields: []field{
			{"order", list{1, admission.MaxClasses, className}, "refused", "Classes, the one that is refused first first. Each class of a queue that has a `pressure` is here or in `reserve`."},
			{"tiers", list{1, policy.MaxTiersOrdered, tierName}, "tiers do not count", "All tiers of the policy, the one that is refused first first."},
			{"reserve", list{0, admission.MaxClasses, className}, "none", "Classes that are never refused for it."},
			{"at", named{keys: levelName, value: list{0, policy.MaxTiersOrdered, shed}}, "refused", "What is refused from a level on, with all that comes before it in the order. A level that is not there refuses what the one before does."},
		},
		needs: []string{"order", "at"},
	},
	{
		name: "load", title: "load",
		doc: "How workers tell how busy they are: what their processes use, and how jobs ran. It is one command more each time for each worker. [Load](guides/load.md) tells what comes of it.",
		fields: []field{
			{"every", span{policy.MinLoadEvery, policy.MaxLoadEvery}, "5s", "How often each worker tells."},
		},
	},
	{
		name: "anomalies", title: "anomalies",
		doc: "What is told of rates that are not usual. Nothing is done about them. [Anomalies](guides/anomalies.md) tells when they are not.",
		fields: []field{
			{"max_unknown", whole{low: policy.MinMaxUnknown, high: policy.MaxMaxUnknown, zero: true}, strconv.Itoa(policy.DefaultMaxUnknown), "How many different things that are not there a credential may ask for in a minute, of one server, before that is told as a `scope_scan`."},
			{"forecast", toggle{}, "`false`", "Has it kept for 15 days what queues are asked for, by which `headgate forecast` foresees [the next hour](guides/anomalies.md#the-next-hour)."},
			{"warn_at", between{policy.MinWarnAt, 1}, "no limit is looked at", "Of which part of its limit a scope is told to be near it, as a `near_limit`: 0.8 is four fifths. Values of dimensions, too."},
		},
	},
	{
		name: "usage", title: "usage",
		doc: "What is kept of usage.",
		fields: []field{
			{"tenants", whole{low: 1, high: policy.MaxUsageTenants, zero: true}, strconv.Itoa(policy.DefaultUsageTenants), "Of how many tenants a day usage is kept, in each partition. What others use is added up under `*`."},
		},
	},
	{
		name: "reservations", title: "reservations",
		doc: "What holds for reservations without a job. One keeps what was in force as it was made, also where the policy is another by then.",
		fields: []field{
			{
				"expire_after",
				span{policy.MinExpireAfter, policy.MaxExpireAfter},
				"of a queue what the policy says, else 1m",
				"For how long after a reservation, or its latest part, its cost may be told. Then what was reserved stands, or more that a part has told. Redis remembers that a cost was told for as long, and the id of a reservation over HTTP for twice as long.",
			},
		},
	},
	{
		name: "semaphore", title: "semaphore",
		doc: "How many permits there are. A lower number cuts nobody off: nobody is let in until fewer are held.",
		fields: []field{
			{"max", whole{low: 0, high: policy.MaxSemaphoreMax}, "refused", "Permits that are held at a time. 0 lets nobody in."},
		},
		needs: []string{"max"},
	},
	{
		name: "dimension", title: "dimension",
		doc: "Limits of each value of a dimension: of values without a limit here nothing is counted. A value of up to 64 bytes of `A-Za-z0-9._@/-` is its own key, others become `key-` and 32 digits of their SHA-256.",
		fields: []field{
			{"limit", limit, "no limit, but for those of `tiers` and `keys`", "Limit of each value. Values share the figures, not the tokens."},
			{"tiers", named{keys: tierName, value: limit}, "`limit` for all", "Limits in the place of `limit` for requests of tenants of a tier. There a value has a bucket of its own, beside that of other tiers."},
			{"keys", named{keys: dimensionKey, value: limit}, "none has its own", fmt.Sprintf("Limits of single values, whatever the tier, up to %d: by the key as it is counted, of addresses such as `203.0.113.0/24` or `2001-db8--/64`. Their buckets do not count for `max_keys`.", policy.MaxDimensionKeys)},
			{"by", list{2, 2, prefixLength}, "values are taken as they are", "Values are addresses, which are counted by their prefix: the bits of IPv4, and those of IPv6, as in `[\"/24\", \"/64\"]`."},
			{"max_keys", whole{low: 1, high: policy.MaxDimensionMaxKeys, zero: true}, strconv.Itoa(policy.DefaultMaxKeys), "Most values that have buckets which are not full, of all partitions together, and as many of each entry of `tiers`. Others share one bucket, scope `+NAME`, until there is room. As values are spread by their hash, some share it from about seven tenths of this on."},
		},
	},
	{
		name: "rollout", title: "rollout",
		doc: "A candidate: rules that replace those of the policy with the same names for a part of the tenants, or for nobody while their answers are counted.",
		fields: []field{
			{"id", anyName, "refused", "Salt by which tenants are chosen. It stays while the share changes."},
			{"percent", whole{low: 0, high: policy.MaxPercent}, "0", "Per cent of the tenants that are in. A tenant that is in stays in while it grows."},
			{"shadow", toggle{}, "`false`", "`true` puts none of it in force: what its limits would answer is counted."},
			{"rules", of("rules"), "refused", "What differs."},
		},
		needs: []string{"id", "rules"},
	},
	{
		name: "rules", title: "rules",
		doc:    "What a candidate says of tenants. It may not change the weights and `max_running` of tier `standard`, an `overflow` of tiers, nor `*` and `*:*` of `overflows`, which Redis knows for all unnamed tenants together.",
		fields: ruleFields(named{keys: tierName, value: of("tier")}, "as in force"),
	},
}

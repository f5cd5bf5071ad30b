// Generated from the OpenAPI description: go test ./admin/internal/openapi -run TypeScript -update

export type AcquireSemaphore = {
  /** After what time it ends by itself: 1s to 1h */
  lease?: Duration;
  permits?: number;
  /** Your name of this acquisition, unlike any other; without it the server makes one */
  token?: LongName;
  /** For how long to stand in line where there is no room, up to 5s */
  wait?: Duration;
};

export type ActualCost = number;

export type Also = Record<string, string>;

export type Answer = {
  allowed: boolean;
  /** On the way, outermost first, then those of dimensions; those without a limit are not there */
  buckets: Array<Bucket>;
  reason?: "limited" | "too_costly" | "buckets";
  /** The scope whose bucket holds too little; of a dimension +NAME:KEY, or +NAME where keys beyond max_keys share one */
  refused_by?: string;
  scope: string;
  tokens: Tokens;
  /** Until every bucket on the way would hold enough, if nobody else took from it */
  wait_ms?: number;
};

export type BatchProblem = {
  burst?: Count;
  detail: string;
  errors?: Array<Fault>;
  reason?: RefusalReason;
  /** Also where Retry-After would have been sent */
  retry_after_ms?: number;
  scope?: string;
  title: string;
  /** Below zero is a debt, of work that cost more than it reserved */
  tokens_left?: number;
  type: string;
};

export type BatchResult = {
  id: string;
  problem?: BatchProblem;
  /** What POST /api/v1/jobs would have answered */
  status: number;
  verdict?: Verdict;
};

export type BatchResults = {
  admitted: Count;
  duplicates: Count;
  /** All others: it is not known, or not to be, that they entered */
  failed: Count;
  /** For now (429) or for good (422) */
  refused: Count;
  results: Array<BatchResult>;
};

export type Bucket = {
  burst: number;
  full_in_ms: number;
  scope: string;
  /** Below zero is a debt, of work that cost more than it reserved */
  tokens_left: number;
  tokens_per_second: number;
};

export type CallMetadata = {
  request_id?: string;
  user_agent?: string;
};

export type CancelReservation = {
  metadata?: CallMetadata;
  reservation: LongName;
  /** That of the reservation: its tenant finds it */
  scope: Scope;
};

export type Cancellations = Array<{
  reason?: string;
  token: Token;
}>;

export type Check = {
  also?: Also;
  checks?: Array<Question>;
  metadata?: CallMetadata;
  /** Charge nothing */
  peek?: boolean;
  priority?: CheckPriority;
  scope?: Scope;
  tokens?: Tokens;
};

export type CheckPriority = string;

export type Commit = {
  /** false while the work goes on: tokens are what it has used so far, of the whole */
  final?: boolean;
  metadata?: CallMetadata;
  reservation: LongName;
  /** That of the reservation: its tenant finds it */
  scope: Scope;
  /** What the work has cost in truth */
  tokens: number;
};

export type Completion = {
  cost?: ActualCost;
  id: JobID;
  /** How long, 1s to 720h; 24h unless given */
  keep_result?: Duration;
  ran?: Ran;
  /** What the job leaves, up to 64 KiB */
  result_base64?: string;
  tenant: TenantName;
  token: Token;
};

export type Count = number;

export type Decision = {
  allowed: boolean;
  answers: Array<Answer>;
  /** Its burst */
  bucket_capacity?: number;
  /** Whether anything was charged */
  consumed: boolean;
  /** Of a refusal */
  error?: {
    code: "RATE_LIMIT_EXCEEDED";
    message: string;
  };
  /** Its tokens a second */
  refill_rate?: number;
  /** Of a single question */
  scope?: string;
  /** Who decided. exact: Redis, and every number is what the buckets hold. leased: tokens that this server has on lease; tokens_left and tokens_remaining are what it has of them, a lower bound, and full_in_ms an upper one. cached: a refusal by Redis less than a second ago, with what the bucket held then, or 0 for a debt, and of the others what is on lease; another answer that is allowed is so as far as is known. blind: Redis gave no answer, so the scopes' outage modes did, and the numbers are what is on lease. */
  source: "exact" | "leased" | "cached" | "blind";
  /** When it was answered, by the server's clock; the decision itself is by that of Redis */
  timestamp: string;
  /** What was charged, each token once, however many buckets are on the way */
  tokens_consumed: Count;
  /** Below zero for a debt; of the bucket that refused, or of the one on the way that holds least; absent where nothing is limited, as are the next two */
  tokens_remaining?: number;
  /** The longest wait of all answers */
  wait_time_ms: number;
};

export type DownstreamName = string;

export type Duration = string;

export type Ended = {
  id: string;
  outcome: "done" | "retried" | "dead" | "released" | "cancelled" | "expired";
  tenant: string;
};

export type ExtendSemaphore = {
  /** 1s to 1h */
  lease?: Duration;
  token: LongName;
};

export type Extended = {
  cancelled: Cancellations;
  lease_ms: number;
  /** How often the policy in force has workers tell how busy they are; absent where it has no `load` */
  load_ms?: number;
};

export type Extension = {
  /** How much of its processors the worker's process uses, or its container. It counts where the policy has a `load`, as long as the session calls, 300 s at most; what is not said is not known */
  cpu?: Used;
  /** The same of memory */
  memory?: Used;
};

export type Failure = {
  cost?: ActualCost;
  /** 1ms to 366 days, as in a Retry-After */
  delay?: Duration;
  /** It will never succeed. The breaker does not hear of it */
  discard?: boolean;
  error?: string;
  id: JobID;
  /** Of the call of the job's downstream, or own: that has no part in it, and its breaker does not hear of it; or throttled: it refused the call as one too many (429), of which its breaker does not hear either, but an adaptive dispatch does */
  kind?: "failure" | "timeout" | "own" | "throttled";
  ran?: Ran;
  /** 1s to 366 days: what a downstream that refused the call has said in Retry-After, with kind throttled alone. The job comes back then, and no attempt is burnt. Where the policy has a max_retry_after, all of the downstream's jobs are held back so long, at most that long */
  retry_after?: Duration;
  tenant: TenantName;
  token: Token;
};

export type Fault = {
  detail: string;
  /** A query parameter or a header */
  parameter?: string;
  /** A JSON pointer into the body */
  pointer?: string;
};

export type JobID = LongName;

export type Lease = {
  /** Failed runs before this one */
  attempts: Count;
  deadline?: Time;
  downstream?: string;
  headers?: Record<string, string>;
  id: string;
  payload_base64: string;
  queue: string;
  tenant: string;
  /** The longest run */
  timeout_ms?: number;
  token: Token;
  type: string;
};

export type Leases = {
  cancelled: Cancellations;
  jobs: Array<Lease>;
  /** A partition of the deployment gave no answer: the leases of its jobs are not renewed, and what it has handed out is told when it is asked with held */
  partial?: boolean;
};

export type LongName = string;

export type Name = string;

export type NewBatch = {
  jobs: Array<NewJob & {
    id: {};
  }>;
};

export type NewJob = {
  /** Tokens, 1 unless given; or "learned": what the tenant's jobs of the type in the queue have cost of late, as this server was told by complete and fail: nine in ten of the last 32 costs were not above it, at first it is 1000, and never above the least burst on the way */
  cost?: number | string;
  /** The latest start */
  deadline?: Time;
  delay?: Duration;
  downstream?: DownstreamName;
  headers?: Record<string, string>;
  id?: JobID;
  max_attempts?: number;
  /** Any JSON value: its text is the payload */
  payload?: unknown;
  /** The payload's bytes; instead of payload */
  payload_base64?: string;
  /** A class of the queue, or 0 to 10; medium unless given */
  priority?: string;
  queue: Name;
  run_at?: Time;
  tenant: TenantName;
  timeout?: Duration;
  type: LongName;
  unique?: {
    for?: Duration;
    key: LongName;
    release?: "end" | "start" | "expiry";
  };
};

export type NewLeases = {
  /** How much of its processors the worker's process uses, or its container. It counts where the policy has a `load`, as long as the session calls, 300 s at most; what is not said is not known */
  cpu?: Used;
  /** Hand out again what the session holds */
  held?: boolean;
  max?: number;
  /** The same of memory */
  memory?: Used;
  /** Up to 5s; by default not at all */
  wait?: Duration;
};

export type NewSession = {
  /** 1s to 5m, 15s unless given */
  lease?: Duration;
  queues: Array<{
    queue: Name;
    weight?: number;
  }>;
  /** How many jobs it holds at a time */
  slots?: number;
  /** In strict order, not by weight */
  strict?: boolean;
};

export type NoPermit = {
  held: Count;
  limit: Count;
  /** How many wait before this one */
  position: Count;
  /** waiting keeps a place in line for two seconds; crowded found no place in it */
  reason: "waiting" | "refused" | "crowded";
  /** Yours */
  token?: string;
};

export type Permit = {
  /** By the clock of Redis */
  expires_at: Time;
  /** Permits that are held, these included */
  held: Count;
  /** Permits there are */
  limit: Count;
  remaining: Count;
  token: string;
};

export type Problem = {
  detail: string;
  errors?: Array<Fault>;
  instance: string;
  request_id: string;
  status: number;
  title: string;
  type: string;
};

export type Question = {
  also?: Also;
  priority?: CheckPriority;
  scope: Scope;
  tokens?: Tokens;
};

export type Ran = Duration;

export type Refusal = Problem & {
  burst?: Count;
  /** Of doomed: the wait that the job would have had, a guess */
  estimated_wait_ms?: number;
  id: string;
  reason: RefusalReason;
  retry_after_ms?: number;
  scope?: string;
  /** Below zero is a debt, of work that cost more than it reserved */
  tokens_left?: number;
  type?: "urn:headgate:problem:refused" | "urn:headgate:problem:refused-for-good";
};

export type RefusalReason = "limited" | "too_costly" | "dedup" | "buckets" | "queues" | "lanes" | "deadline" | "memory" | "paused" | "unique" | "overflow" | "too_large" | "gone" | "breaker" | "shed" | "doomed";

export type Release = {
  /** 1ms to 366 days; at once unless given */
  delay?: Duration;
  id: JobID;
  tenant: TenantName;
  token: Token;
};

export type ReleaseSemaphore = {
  token: LongName;
};

export type Reservation = {
  /** They had been reserved before this call, by one whose answer was lost */
  again: boolean;
  /** On the way, outermost first, as the taking left them; those without a limit are not there */
  buckets: Array<Bucket>;
  /** For how many milliseconds from the taking, or the latest part, its cost may be told, by the policy that was in force then; a minute where it is not there */
  expire_after_ms?: number;
  /** Its id */
  reservation: string;
  scope: string;
  tokens: Tokens;
};

export type Reserve = {
  also?: Also;
  metadata?: CallMetadata;
  priority?: CheckPriority;
  /** Your id of this reservation, unlike any other of its tenant within two minutes, or twice expire_after_ms; without it the server makes one */
  reservation?: LongName;
  scope: Scope;
  /** The estimate; without it what the tenant's work in the queue has cost of late, as this server was told by commit: nine in ten of the last 32 costs were not above it, at first it is 1000, and never above the least burst on the way */
  tokens?: Tokens;
};

export type Scope = string;

export type Session = {
  lease_ms: number;
  pool: string;
  slots: Count;
  worker: string;
};

export type Settled = {
  reservation: string;
  reserved: Tokens;
  /** committed: it counts. committed_before: an earlier call counted, and this one did nothing. too_late: more than a minute, or what the policy gave, has passed since the taking or the latest part, and policy_changed: less was used and the policy is another one since; in both the reservation stands as it was, or at what was told so far where that is more. */
  result: "committed" | "committed_before" | "too_late" | "policy_changed";
  /** What this call told */
  tokens: Count;
};

export type TenantName = Name;

export type Throttled = Problem & {
  type?: "urn:headgate:problem:too-many-requests";
};

export type Time = string;

export type Token = string;

export type Tokens = number;

export type Used = number;

export type Verdict = {
  /** It went beside the limits of its queue and class by bypass of the policy */
  bypassed?: boolean;
  decision: "admitted" | "duplicate";
  /** Older jobs that became dead letters to make room */
  dropped?: number;
  estimated_wait_ms?: number;
  id: string;
  place?: "ready" | "waiting" | "later" | "spilled";
  position?: number;
  /** Fewer replicas than redis.replicas asks for confirmed the job in time; the same request again waits again */
  unreplicated?: boolean;
};

import type { AcquireSemaphore, BatchResult, CancelReservation, Check, Commit, Completion, Decision, Ended, Extended, ExtendSemaphore, Extension, Failure, Fault, Leases, Lease, NewJob, NewLeases, NewSession, NoPermit, Permit, Release, Reservation, Reserve, Session, Settled, Verdict } from "./types.d.ts";

export type * from "./types.d.ts";

/** A call that failed: status is that of HTTP, 0 without an answer; reason why a job was refused; retryAfter is in seconds. */
export declare class HeadgateError extends Error {
  readonly status: number;
  readonly kind: string;
  readonly reason?: string;
  readonly requestId?: string;
  readonly errors: Fault[];
  readonly retryAfter?: number;
}
/** No answer came. What was asked may have been done. */
export declare class NetworkError extends HeadgateError {}
export declare class InvalidRequest extends HeadgateError {}
export declare class Unauthenticated extends HeadgateError {}
export declare class Forbidden extends HeadgateError {}
export declare class NotFound extends HeadgateError {}
/** Of a worker's calls: the lease is over, the job runs elsewhere or has ended. */
export declare class Conflict extends HeadgateError {}
/** The key, or whoever calls through a proxy, makes more calls than it may. Nothing was done. */
export declare class TooManyRequests extends HeadgateError {}
/** A job was refused: reason says why, retryAfter when to come back. */
export declare class Refused extends HeadgateError {}
export declare class RefusedForGood extends Refused {}
/** The server could not do it now. Nothing was done. */
export declare class Unavailable extends HeadgateError {}
/** Redis gave no answer in time, or a proxy has none: it may have been done. The same id may be sent again. */
export declare class OutcomeUnknown extends HeadgateError {}

export interface ClientOptions {
  /** HEADGATE_URL unless given. */
  url?: string;
  /** HEADGATE_KEY unless given. */
  key?: string;
  /** Seconds a call; 10 unless given. */
  timeout?: number;
  /** How often a call that is safe to be sent again is; 5 unless given. */
  retries?: number;
}

export declare class Client {
  constructor(options?: ClientOptions);
  /** Enqueues a job once, however often the call has to be sent. Rejects with Refused. */
  enqueue(job: NewJob): Promise<Verdict>;
  /** Enqueues up to 64 jobs by one call, and returns what became of each, in their order. */
  enqueueBatch(jobs: NewJob[]): Promise<BatchResult[]>;
  /** Asks for tokens. A refusal is an answer. It is sent again only where nothing can have been charged. */
  check(asked: Check): Promise<Decision>;
  /** Reserves an estimate until commit or cancelReservation. What has no reservation is a refusal. It may be sent again, as its id is the same. */
  reserve(asked: Reserve): Promise<Reservation | Decision>;
  /** Tells what reserved work has cost. It counts once; with final false it goes on, and tokens are what it has used so far, of the whole. Rejects with NotFound where nothing is known of the reservation. */
  commit(asked: Commit): Promise<Settled>;
  /** Tells that reserved work did not begin. */
  cancelReservation(asked: CancelReservation): Promise<Settled>;
  /** Leases permits of a semaphore, all or none. What has no expires_at is a refusal. It may be sent again, as its token is the same. */
  acquire(semaphore: string, asked?: AcquireSemaphore): Promise<Permit | NoPermit>;
  /** Has a lease end so long from now. Rejects with Conflict where it has ended: then somebody else may hold the permits. */
  extendPermits(semaphore: string, asked: ExtendSemaphore): Promise<Permit>;
  /** Gives permits back. Rejects with Conflict where their lease had ended by itself. */
  releasePermits(semaphore: string, token: string): Promise<void>;
  register(asked: NewSession): Promise<Session>;
  deregister(worker: string): Promise<void>;
  /** Takes jobs. It is not sent again: after a call without an answer ask once with held. retryAfter is in seconds. */
  lease(worker: string, asked?: NewLeases): Promise<Leases & { retryAfter?: number }>;
  /** Renews the leases of all that a session holds. used is what this process uses, in percent, where the last answer had a load_ms. */
  extend(worker: string, used?: Extension): Promise<Extended>;
  complete(worker: string, ending: Completion): Promise<Ended>;
  fail(worker: string, ending: Failure): Promise<Ended>;
  release(worker: string, ending: Release): Promise<Ended>;
}

/** Thrown by a handler: the job will never succeed, and becomes a dead letter. */
export declare class Discard extends Error {}
/** Thrown by a handler: the job is to come back after some seconds, and no attempt is burnt. */
export declare class Snooze extends Error {
  constructor(delay: number);
  readonly delay: number;
}
/** Thrown by a handler: the job failed. delay is the seconds until it is tried again, retryAfter what a downstream said that refused the call: kind "throttled". */
export declare class Fail extends Error {
  constructor(message: string, options?: { delay?: number; kind?: "failure" | "timeout" | "own" | "throttled"; retryAfter?: number });
  readonly delay?: number;
  readonly kind: "failure" | "timeout" | "own" | "throttled";
  readonly retryAfter?: number;
}

export declare class Job {
  constructor(lease: Lease);
  readonly tenant: string;
  readonly id: string;
  readonly token: string;
  readonly queue: string;
  readonly type: string;
  readonly attempts: number;
  readonly downstream?: string;
  readonly deadline?: string;
  /** Seconds. */
  readonly timeout?: number;
  readonly headers: Record<string, string>;
  readonly payload: Uint8Array;
  /** Aborted when somebody cancelled the job, or its lease is lost: stop then. */
  readonly signal: AbortSignal;
  json(): unknown;
  /** What the job cost in truth, in tokens. */
  setCost(tokens: number): void;
  /** Leaves up to 64 KiB for whoever asks for the result, for some seconds (a day unless given). */
  setResult(result: Uint8Array | string, keep?: number): void;
}

export interface WorkerOptions {
  /** The queues, with their weights. */
  queues: Record<string, number>;
  /** What runs the jobs of each type. */
  handlers: Record<string, (job: Job) => void | Promise<void>>;
  /** How many jobs run at a time; 1 unless given. */
  slots?: number;
  /** Seconds after which the jobs of a process that died run elsewhere; 15 unless given. */
  lease?: number;
  strict?: boolean;
  /** Seconds of a long poll; 2 unless given, at most 5. */
  wait?: number;
  /** Seconds that run waits for what runs when it is stopped; 25 unless given. */
  drain?: number;
  log?: Pick<Console, "warn" | "error">;
}

export declare class Worker {
  constructor(client: Client, options: WorkerOptions);
  /** Lets run take no more jobs. */
  stop(): void;
  /** Works until stop, SIGTERM or SIGINT. Rejects with what no waiting helps with, such as Forbidden. */
  run(): Promise<void>;
}

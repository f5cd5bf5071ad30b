// Client and worker for Headgate's HTTP API, by fetch alone. The types are in headgate.d.ts, the bodies in types.d.ts.

import os from "node:os";

const prefix = "urn:headgate:problem:";
const firstBackoff = 100, longestBackoff = 5_000, longestWait = 30_000; // ms
const heldEvery = 60_000; // ms between two questions for jobs that the session holds and this process does not know
const leaseEnds = 0.9; // of a lease that is not renewed: its jobs are cancelled before others run them
const longestRan = 86_400; // s that the server takes: of a job that ran for longer it hears that
const unknownDelay = "30s"; // for which a job of a type without a handler is put away

/** A call that failed. */
export class HeadgateError extends Error {
  constructor(detail, status = 0, problem = {}, retryAfter = undefined) {
    const faults = (problem.errors ?? []).map((e) => `${e.pointer ?? e.parameter ?? ""} ${e.detail}`).join("; ");
    super(faults ? `${detail} (${faults})` : detail);
    this.name = new.target.name;
    this.status = status;
    this.kind = (problem.type ?? "").replace(prefix, "");
    this.reason = problem.reason;
    this.requestId = problem.request_id;
    this.errors = problem.errors ?? [];
    this.retryAfter = problem.retry_after_ms === undefined ? retryAfter : problem.retry_after_ms / 1000;
  }
}
export class NetworkError extends HeadgateError {}
export class InvalidRequest extends HeadgateError {}
export class Unauthenticated extends HeadgateError {}
export class Forbidden extends HeadgateError {}
export class NotFound extends HeadgateError {}
export class Conflict extends HeadgateError {}
export class TooManyRequests extends HeadgateError {}
export class Refused extends HeadgateError {}
export class RefusedForGood extends Refused {}
export class Unavailable extends HeadgateError {}
export class OutcomeUnknown extends HeadgateError {}

const byKind = {
  unauthenticated: Unauthenticated, forbidden: Forbidden, "not-found": NotFound, conflict: Conflict, "too-many-requests": TooManyRequests,
  refused: Refused, "refused-for-good": RefusedForGood, "outcome-unknown": OutcomeUnknown, unavailable: Unavailable, busy: Unavailable,
};
// What is no problem of the server's is of a proxy, which may say 502 to 504 of a call that it has passed on.
const byStatus = { 400: InvalidRequest, 413: InvalidRequest, 415: InvalidRequest, 429: TooManyRequests, 502: OutcomeUnknown, 503: OutcomeUnknown, 504: OutcomeUnknown };

function errorOf(status, problem, retryAfter) {
  const made = byKind[(problem.type ?? "").replace(prefix, "")] ?? byStatus[status] ?? HeadgateError;
  return new made(problem.detail ?? `status ${status}`, status, problem, retryAfter);
}

/** Waits some ms, or until a signal is aborted. */
function sleep(ms, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = () => { clearTimeout(timer); signal?.removeEventListener("abort", end); resolve(); };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end, { once: true });
  });
}

const session = (worker, call = "") => `/api/v1/workers/${encodeURIComponent(worker)}${call && "/" + call}`;

const permits = (semaphore, call) => `/api/v1/semaphores/${encodeURIComponent(semaphore)}/${call}`;

/** Calls a server. */
export class Client {
  #url; #key; #timeout; #retries;

  constructor({ url = process.env.HEADGATE_URL ?? "http://127.0.0.1:9080", key = process.env.HEADGATE_KEY ?? "", timeout = 10, retries = 5 } = {}) {
    const parsed = new URL(url);
    if (!["http:", "https:"].includes(parsed.protocol) || parsed.username) throw new TypeError("url: want http://HOST:PORT or https://HOST:PORT, without a user");
    if (!(timeout > 0) || !(retries >= 0)) throw new RangeError(`timeout ${timeout}, retries ${retries}: want more than 0, and 0 or more`);
    this.#url = parsed.href.replace(/\/+$/, "");
    this.#key = key;
    this.#timeout = timeout * 1000;
    this.#retries = retries;
  }

  async enqueue(job) {
    return (await this.#call("POST", "/api/v1/jobs", { ...job, id: job.id ?? crypto.randomUUID() })).value;
  }

  async enqueueBatch(jobs) {
    const all = jobs.map((job) => ({ ...job, id: job.id ?? crypto.randomUUID() }));
    const results = new Array(all.length);
    let left = [...all.keys()];
    for (let attempt = 0; ; attempt++) {
      const got = (await this.#call("POST", "/api/v1/jobs/batch", { jobs: left.map((i) => all[i]) })).value.results;
      left.forEach((at, i) => { results[at] = got[i]; });
      left = left.filter((at) => results[at].status === 503 || results[at].status === 504);
      if (left.length === 0 || attempt === this.#retries) return results;
      await this.#pause(attempt);
    }
  }

  async check(asked) {
    return (await this.#call("POST", "/api/v1/rate-limit/check", asked, { safe: asked.peek === true })).value;
  }

  async reserve(asked) {
    const body = { ...asked, reservation: asked.reservation ?? crypto.randomUUID() };
    return (await this.#call("POST", "/api/v1/rate-limit/reserve", body)).value;
  }

  async commit(asked) {
    return (await this.#call("POST", "/api/v1/rate-limit/commit", asked)).value;
  }

  async cancelReservation(asked) {
    return (await this.#call("POST", "/api/v1/rate-limit/cancel", asked)).value;
  }

  async acquire(semaphore, asked = {}) {
    const body = { ...asked, token: asked.token ?? crypto.randomUUID() };
    return (await this.#call("POST", permits(semaphore, "acquire"), body, { timeout: this.#timeout + (asked.wait ? 5_000 : 0) })).value;
  }

  async extendPermits(semaphore, asked) {
    return (await this.#call("POST", permits(semaphore, "extend"), asked)).value;
  }

  async releasePermits(semaphore, token) {
    await this.#call("POST", permits(semaphore, "release"), { token });
  }

  async register(asked) {
    return (await this.#call("POST", "/api/v1/workers", asked)).value;
  }

  async deregister(worker) {
    await this.#call("DELETE", session(worker));
  }

  async lease(worker, asked = {}) {
    const { value, retryAfter } = await this.#call("POST", session(worker, "leases"), asked, { safe: false, timeout: this.#timeout + 5_000 });
    return { ...value, retryAfter };
  }

  async extend(worker, used) {
    return (await this.#call("POST", session(worker, "extend"), used)).value;
  }

  async complete(worker, ending) {
    return (await this.#call("POST", session(worker, "complete"), ending)).value;
  }

  async fail(worker, ending) {
    return (await this.#call("POST", session(worker, "fail"), ending)).value;
  }

  async release(worker, ending) {
    return (await this.#call("POST", session(worker, "release"), ending)).value;
  }

  // Makes a call, and again while that is safe and may help. safe says that it may be sent twice.
  async #call(method, path, body, { safe = true, timeout = this.#timeout } = {}) {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#once(method, path, body, timeout);
      } catch (error) {
        const nothingDone = error instanceof TooManyRequests || error instanceof Unavailable || error.notSent;
        const mayBeDone = error instanceof NetworkError || error instanceof OutcomeUnknown;
        if (!(nothingDone || (safe && mayBeDone)) || attempt >= this.#retries || (error.retryAfter ?? 0) * 1000 > longestWait) throw error;
        await this.#pause(attempt, error.retryAfter);
      }
    }
  }

  #pause(attempt, retryAfter = 0) {
    const most = Math.min(longestBackoff, firstBackoff * 2 ** attempt);
    return sleep(Math.max(retryAfter * 1000, most * (0.5 + Math.random() / 2)));
  }

  async #once(method, path, body, timeout) {
    const headers = { accept: "application/json" };
    if (this.#key) headers.authorization = `Bearer ${this.#key}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    let response, text;
    try {
      const signal = AbortSignal.timeout(timeout);
      response = await fetch(this.#url + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), redirect: "error", signal });
      text = await response.text();
    } catch (cause) {
      const error = new NetworkError(`no answer: ${cause.cause?.message || cause.message}`);
      error.notSent = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"].includes(cause.cause?.code); // There was no connection.
      throw error;
    }
    const kind = (response.headers.get("content-type") ?? "").split(";")[0];
    const after = response.headers.get("retry-after") ?? "";
    const retryAfter = /^\d+$/.test(after) ? Number(after) : undefined;
    let value;
    if (kind === "application/json" || kind === "application/problem+json") {
      try { value = JSON.parse(text); } catch { throw new NetworkError("the answer is no JSON"); }
    }
    const object = typeof value === "object" && value !== null && !Array.isArray(value);
    if (response.ok && response.status !== 204 && !object) throw new NetworkError(`the answer is no JSON object: ${new URL(this.#url).host} is another server`);
    const answers = response.status === 429 && object && ("allowed" in value || "position" in value); // A check that was refused, a semaphore without room.
    if (response.ok || answers) return { value, retryAfter };
    throw errorOf(response.status, object ? value : {}, retryAfter);
  }
}

/** Thrown by a handler: the job will never succeed. */
export class Discard extends Error {}

/** Thrown by a handler: the job is to come back after some seconds, and no attempt is burnt. */
export class Snooze extends Error {
  constructor(delay) { super(`snoozed for ${delay} s`); this.delay = delay; }
}

/** Thrown by a handler: the job failed. */
export class Fail extends Error {
  constructor(message, { delay, kind = "failure", retryAfter } = {}) { super(message); this.delay = delay; this.kind = kind; this.retryAfter = retryAfter; }
}

const duration = (seconds) => `${Math.max(1, Math.round(seconds * 1000))}ms`;

/** A job that a handler runs. */
export class Job {
  #cancelled = new AbortController();
  #ending = {};

  constructor(lease) {
    this.tenant = lease.tenant; this.id = lease.id; this.token = lease.token; this.queue = lease.queue; this.type = lease.type;
    this.attempts = lease.attempts; this.downstream = lease.downstream; this.deadline = lease.deadline; this.headers = lease.headers ?? {};
    this.timeout = lease.timeout_ms === undefined ? undefined : lease.timeout_ms / 1000;
    this.payload = Buffer.from(lease.payload_base64, "base64");
  }

  get signal() { return this.#cancelled.signal; }
  get ending() { return this.#ending; }
  json() { return JSON.parse(this.payload.toString()); }
  setCost(tokens) { this.#ending.cost = tokens; }
  setResult(result, keep) {
    this.#ending.result_base64 = Buffer.from(result).toString("base64");
    if (keep !== undefined) this.#ending.keep_result = duration(keep);
  }
  cancel() { this.#cancelled.abort(); }
}

/** Measures this process, from one sample to the next. */
class Usage {
  #spent = process.cpuUsage(); #at = performance.now();

  /** How much of its processors and of its memory this process uses, in percent, of the container's where it has a limit. */
  sample() {
    const { user, system } = process.cpuUsage(this.#spent), wall = performance.now() - this.#at;
    this.#spent = process.cpuUsage(); this.#at = performance.now();
    const limit = process.constrainedMemory?.() || Infinity; // Without a limit some versions say 0, some more than there is.
    const percent = (part) => Math.round(Math.min(100 * part, 100) * 100) / 100;
    return { cpu: percent((user + system) / 1000 / Math.max(wall, 1) / (os.availableParallelism?.() ?? os.cpus().length)), memory: percent(process.memoryUsage.rss() / Math.min(limit, os.totalmem())) };
  }
}

/** Runs handlers for the jobs of some queues until it is stopped. */
export class Worker {
  #client; #asked; #slots; #lease; #wait; #drain; #log; #handlers; #stopping = new AbortController(); #jobs = new Map(); #session; #usage; #freed = () => {};
  #renewed = 0; // when the call began that renewed the session's lease last
  #ended = new Set(); // tokens of jobs that ended since the last call for jobs began: its answer may tell of them still

  constructor(client, { queues, handlers, slots = 1, lease = 15, strict = false, wait = 2, drain = 25, log = console }) {
    this.#client = client;
    this.#asked = { queues: Object.entries(queues).map(([queue, weight]) => ({ queue, weight })), strict, slots, lease: duration(lease) };
    this.#stopping.signal.addEventListener("abort", () => this.#freed());
    this.#slots = slots; this.#lease = lease * 1000; this.#wait = wait; this.#drain = drain * 1000; this.#log = log; this.#handlers = handlers;
  }

  stop() { this.#stopping.abort(); }

  async run() {
    const stop = () => this.stop();
    process.on("SIGTERM", stop).on("SIGINT", stop);
    const extending = setInterval(() => this.#extend(), this.#lease / 3);
    const watching = setInterval(() => { if (performance.now() - this.#renewed > this.#lease * leaseEnds) this.#lost(this.#session); }, this.#lease / 12);
    try {
      await this.#take();
      const late = new AbortController();
      await Promise.race([Promise.all([...this.#jobs.values()].map((r) => r.running)), sleep(this.#drain, late.signal)]);
      late.abort();
    } finally {
      this.stop();
      clearInterval(extending);
      clearInterval(watching);
      for (const { job } of this.#jobs.values()) job.cancel();
      if (this.#session) await this.#client.deregister(this.#session).catch((error) => this.#log.warn(`headgate: the session ends by its lease: ${error.message}`));
      process.off("SIGTERM", stop).off("SIGINT", stop);
    }
  }

  async #take() {
    let askHeld = false, asked = Date.now();
    const stopping = this.#stopping.signal;
    while (!stopping.aborted) {
      const free = this.#slots - this.#jobs.size;
      if (free <= 0) {
        await new Promise((resolve) => { this.#freed = resolve; });
        continue;
      }
      const held = askHeld || Date.now() - asked > heldEvery;
      let got, session = this.#session, began = performance.now();
      try {
        if (!session) {
          session = this.#session = (await this.#client.register(this.#asked)).worker;
          this.#renewed = began;
          began = performance.now();
        }
        if (held) asked = Date.now();
        this.#ended.clear();
        got = await this.#client.lease(session, held ? { max: 16, held } : { max: Math.min(free, 16), wait: duration(this.#wait) });
      } catch (error) {
        if (error instanceof Conflict) { this.#lost(session); continue; }
        if (!(error instanceof HeadgateError) || (error.status >= 400 && error.status < 500 && error.status !== 429)) throw error; // The key, or the queues, are wrong.
        this.#log.warn(`headgate: no jobs are taken: ${error.message}`);
        askHeld = true; // What was handed out may not have arrived.
        await sleep((error.retryAfter ?? 1) * 1000, stopping);
        continue;
      }
      if (!this.#heard(session, began)) continue; // What it got runs elsewhere.
      askHeld = got.partial === true;
      this.#cancel(got.cancelled);
      for (const lease of got.jobs) this.#start(session, lease, held);
      if (got.jobs.length === 0 && !held && got.retryAfter > 1) await sleep(got.retryAfter * 1000, stopping);
    }
  }

  // Notes that a call has renewed the lease of a session, and tells whether it is not lost.
  #heard(session, began) {
    if (this.#session !== session) return false;
    this.#renewed = Math.max(this.#renewed, began);
    return true;
  }

  #lost(session) {
    if (!session || this.#session !== session) return;
    this.#session = undefined;
    this.#log.warn(`headgate: the session's lease is over; ${this.#jobs.size} jobs run elsewhere`);
    for (const { job } of this.#jobs.values()) job.cancel();
  }

  #cancel(cancelled) {
    for (const { token } of cancelled) this.#jobs.get(token)?.job.cancel();
  }

  #start(session, lease, held) {
    if (this.#jobs.has(lease.token) || this.#ended.has(lease.token)) return; // It was asked for what is held.
    const job = new Job(lease);
    const late = held && Date.parse(lease.deadline) < Date.now(); // It was never begun, and waits or expires.
    const ended = late ? this.#client.release(session, { tenant: job.tenant, id: job.id, token: job.token }) : this.#end(session, job).catch((error) => {
      if (error instanceof HeadgateError && !(error instanceof InvalidRequest)) throw error;
      // How it ended cannot be told, such as a result that is too large, nor could it the next time: that is a failure.
      this.#log.error(`headgate: job ${job.id} of ${job.tenant}: ${error.message}`);
      return this.#client.fail(session, { tenant: job.tenant, id: job.id, token: job.token, error: String(error.message).slice(0, 1024), kind: "own" });
    });
    const running = ended.catch((error) => {
      const known = error instanceof Conflict ? "its end is known already, or it runs elsewhere" : `its end could not be told, and it runs again: ${error.message}`;
      this.#log.warn(`headgate: job ${job.id} of ${job.tenant}: ${known}`);
    }).finally(() => { this.#jobs.delete(job.token); this.#ended.add(job.token); this.#freed(); });
    this.#jobs.set(job.token, { job, running });
  }

  async #end(session, job) {
    const at = { tenant: job.tenant, id: job.id, token: job.token };
    const handle = this.#handlers[job.type];
    if (!handle) {
      this.#log.error(`headgate: job ${job.id} of ${job.tenant}: nothing handles the type ${job.type}`);
      return this.#client.release(session, { ...at, delay: unknownDelay });
    }
    const began = performance.now();
    const ran = () => duration(Math.min((performance.now() - began) / 1000, longestRan));
    try {
      await handle(job);
    } catch (error) {
      if (error instanceof Snooze) return this.#client.release(session, { ...at, delay: duration(error.delay) });
      if (job.signal.aborted) return this.#client.release(session, at);
      const failure = { ...at, error: String(error?.message || error).slice(0, 1024), kind: error instanceof Fail ? error.kind : error?.name === "TimeoutError" ? "timeout" : "failure", ran: ran() };
      if (job.ending.cost !== undefined) failure.cost = job.ending.cost;
      if (error instanceof Discard) failure.discard = true;
      if (error instanceof Fail && error.delay !== undefined) failure.delay = duration(error.delay);
      if (error instanceof Fail && error.retryAfter !== undefined) failure.retry_after = duration(error.retryAfter);
      return this.#client.fail(session, failure);
    }
    if (job.signal.aborted) return this.#client.release(session, at);
    return this.#client.complete(session, { ...at, ran: ran(), ...job.ending });
  }

  async #extend() {
    const session = this.#session;
    if (!session) return;
    const began = performance.now();
    try {
      const extended = await this.#client.extend(session, this.#usage?.sample());
      this.#heard(session, began);
      this.#usage = extended.load_ms ? this.#usage ?? new Usage() : undefined; // It is measured while the policy asks.
      this.#cancel(extended.cancelled);
    } catch (error) {
      this.#usage = undefined; // A server of before takes no such body.
      if (error instanceof Conflict) this.#lost(session);
      else this.#log.warn(`headgate: the lease is not renewed: ${error.message}`);
    }
  }
}

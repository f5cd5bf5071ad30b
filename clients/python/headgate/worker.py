"""A worker: one session, a thread for each job, and one that keeps the leases."""

from __future__ import annotations

import base64
import calendar
import json
import logging
import signal
import threading
import time
from typing import Any, Callable, Dict, Mapping, Optional, Set

from .client import Client
from .errors import Conflict, HeadgateError, InvalidRequest
from .types import Lease
from .usage import Usage

_log = logging.getLogger("headgate")
_HELD_EVERY = 60.0  # seconds between two questions for jobs that the session holds and this process does not know
_LEASE_ENDS = 0.9  # of a lease that is not renewed: its jobs are cancelled before others run them
_LONGEST_RAN = 86_400.0  # seconds that the server takes: of a job that ran for longer it hears that
_UNKNOWN_DELAY = 30.0  # seconds for which a job of a type without a handler is put away


class Discard(Exception):
    """Raised by a handler: the job will never succeed, and becomes a dead letter."""


class Snooze(Exception):
    """Raised by a handler: the job is to come back after some seconds, and no attempt is burnt."""

    def __init__(self, delay: float) -> None:
        super().__init__(delay)
        self.delay = delay


class Fail(Exception):
    """Raised by a handler: the job failed. delay is the seconds until it is tried again; kind is failure, timeout, own or throttled, as of the call of
    the job's downstream; retry_after is what one said that refused the call (429). Any other exception is a failure, TimeoutError a timeout."""

    def __init__(self, error: str, *, delay: Optional[float] = None, kind: str = "failure", retry_after: Optional[float] = None) -> None:
        super().__init__(error)
        self.delay, self.kind, self.retry_after = delay, kind, retry_after


class Job:
    """A job that a handler runs. cancelled is set when somebody cancelled it, or its lease is lost: stop then."""

    def __init__(self, lease: Lease) -> None:
        self.tenant, self.id, self.token = lease["tenant"], lease["id"], lease["token"]
        self.queue, self.type = lease["queue"], lease["type"]
        self.attempts: int = lease["attempts"]
        self.downstream: Optional[str] = lease.get("downstream")
        self.deadline: Optional[str] = lease.get("deadline")
        self.timeout: Optional[float] = lease["timeout_ms"] / 1000 if "timeout_ms" in lease else None
        self.headers: Dict[str, str] = dict(lease.get("headers", {}))
        self.payload: bytes = base64.b64decode(lease["payload_base64"])
        self.cancelled = threading.Event()
        self._cost: Optional[int] = None
        self._result: Optional[bytes] = None
        self._keep: Optional[float] = None

    def _late(self) -> bool:
        """Whether the deadline is over, by the clock of this process, to the second."""
        return self.deadline is not None and time.time() > calendar.timegm(time.strptime(self.deadline[:19], "%Y-%m-%dT%H:%M:%S")) + 1

    def json(self) -> Any:
        """Return the payload as the JSON value that it is."""
        return json.loads(self.payload)

    def set_cost(self, tokens: int) -> None:
        """Say what the job cost in truth; its cost when it was enqueued is the reservation."""
        self._cost = tokens

    def set_result(self, result: bytes, keep: Optional[float] = None) -> None:
        """Leave up to 64 KiB for whoever asks for the job's result, for some seconds (a day unless given)."""
        self._result, self._keep = result, keep


Handler = Callable[[Job], None]


class Worker:
    """Runs handlers for the jobs of some queues, given with their weights, until stop, SIGTERM or SIGINT.

    slots is how many jobs run at a time, each in a thread; lease the seconds after which the jobs of a process that died run elsewhere;
    drain how long run waits for what runs when it is stopped. What runs then still is handed back, and runs again.
    """

    def __init__(
        self,
        client: Client,
        queues: Mapping[str, int],
        *,
        slots: int = 1,
        lease: float = 15.0,
        strict: bool = False,
        wait: float = 2.0,
        drain: float = 25.0,
    ) -> None:
        self._client, self._queues, self._slots, self._strict = client, dict(queues), slots, strict
        self._lease, self._wait, self._drain = lease, wait, drain
        self._handlers: Dict[str, Handler] = {}
        self._stopping = threading.Event()
        self._changed = threading.Condition()  # guards what follows
        self._jobs: Dict[str, Job] = {}  # by token
        self._ended: Set[str] = set()  # tokens of those that ended since the last call for jobs began: its answer may tell of them still
        self._session: Optional[str] = None
        self._renewed = 0.0  # when the call began that renewed its lease last

    def handler(self, type: str) -> Callable[[Handler], Handler]:
        """Register what runs the jobs of a type: @worker.handler("welcome")."""

        def register(handle: Handler) -> Handler:
            self._handlers[type] = handle
            return handle

        return register

    def stop(self) -> None:
        """Let run take no more jobs, and return when those that it has have ended. It may be called from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Work until stopped. In the main thread, SIGTERM and SIGINT stop it. Raises what no waiting helps with, such as Forbidden."""
        before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, lambda *_: self.stop())
        ended = threading.Event()
        extender = threading.Thread(target=self._extend, args=(ended,), name="headgate-extend", daemon=True)
        extender.start()
        try:
            self._take()
            self._finish()
        finally:
            self._stopping.set()
            ended.set()
            extender.join()
            self._hand_back()
            for number, was in before.items():
                signal.signal(number, was)

    def _take(self) -> None:
        ask_held, asked = False, time.monotonic()
        while not self._stopping.is_set():
            free = self._await_slot()
            if free == 0:
                continue
            held = ask_held or time.monotonic() - asked > _HELD_EVERY
            session = ""
            try:
                session = self._begin()
                began = time.monotonic()
                if held:
                    asked = time.monotonic()
                with self._changed:
                    self._ended.clear()
                got, retry_after = self._client.lease(session, 16 if held else min(free, 16), wait=0 if held else self._wait, held=held)
            except Conflict:
                self._lost(session)
                continue
            except HeadgateError as error:
                if 400 <= error.status < 500 and error.status != 429:
                    raise  # The key, or the queues, are wrong.
                _log.warning("no jobs are taken: %s", error)
                ask_held = True  # What was handed out may not have arrived.
                self._stopping.wait(error.retry_after or 1.0)
                continue
            if not self._heard(session, began):
                continue  # What it got runs elsewhere.
            ask_held = got.get("partial", False)
            self._cancel(got["cancelled"])
            for lease in got["jobs"]:
                self._start(session, lease, held)
            if not got["jobs"] and not held:
                self._stopping.wait(retry_after if retry_after > 1 else 0)

    def _await_slot(self) -> int:
        with self._changed:
            if len(self._jobs) >= self._slots:
                self._changed.wait(0.5)
            return max(0, self._slots - len(self._jobs))

    def _begin(self) -> str:
        with self._changed:
            if self._session:
                return self._session
        began = time.monotonic()
        made = self._client.register(self._queues, strict=self._strict, slots=self._slots, lease=self._lease)["worker"]
        with self._changed:
            self._session, self._renewed = made, began
        return made

    def _heard(self, session: str, began: float) -> bool:
        """Note that a call has renewed the lease of a session, and tell whether it is not lost."""
        with self._changed:
            if self._session != session:
                return False
            self._renewed = max(self._renewed, began)
            return True

    def _lost(self, session: str) -> None:
        """The lease of a session is over: its jobs run elsewhere."""
        with self._changed:
            if self._session != session:
                return
            self._session = None
            lost = list(self._jobs.values())
        _log.warning("the session's lease is over; %d jobs run elsewhere", len(lost))
        for job in lost:
            job.cancelled.set()

    def _start(self, session: str, lease: Lease, held: bool) -> None:
        job = Job(lease)
        with self._changed:
            if job.token in self._jobs or job.token in self._ended:  # It was asked for what is held.
                return
            self._jobs[job.token] = job
        threading.Thread(target=self._run, args=(session, job, held and job._late()), name=f"headgate-{job.id}", daemon=True).start()

    def _cancel(self, cancelled: Any) -> None:
        with self._changed:
            told = [self._jobs[c["token"]] for c in cancelled if c["token"] in self._jobs]
        for job in told:
            job.cancelled.set()

    def _run(self, session: str, job: Job, late: bool) -> None:
        try:
            if late:  # It was never begun, and waits or expires.
                self._client.release(session, job.tenant, job.id, job.token)
                return
            try:
                self._end(session, job)
            except BaseException as error:
                if isinstance(error, HeadgateError) and not isinstance(error, InvalidRequest):
                    raise
                # How it ended cannot be told, such as a result that is too large, nor could it the next time: that is a failure.
                _log.exception("job %s of %s", job.id, job.tenant)
                self._client.fail(session, job.tenant, job.id, job.token, error=str(error) or type(error).__name__, kind="own")
        except Conflict:
            _log.warning("job %s of %s: its end is known already, or it runs elsewhere", job.id, job.tenant)
        except HeadgateError as error:
            _log.error("job %s of %s: its end could not be told, and it runs again: %s", job.id, job.tenant, error)
        finally:
            with self._changed:
                self._jobs.pop(job.token, None)
                self._ended.add(job.token)
                self._changed.notify_all()

    def _end(self, session: str, job: Job) -> None:
        at = (session, job.tenant, job.id, job.token)
        handle = self._handlers.get(job.type)
        if handle is None:
            _log.error("job %s of %s: nothing handles the type %s", job.id, job.tenant, job.type)
            self._client.release(*at, delay=_UNKNOWN_DELAY)
            return
        began = time.monotonic()
        try:
            handle(job)
        except Snooze as snooze:
            self._client.release(*at, delay=snooze.delay)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is the job's failure
            ran = min(time.monotonic() - began, _LONGEST_RAN)
            if job.cancelled.is_set():
                self._client.release(*at)
                return
            kind, delay, retry_after = "timeout" if isinstance(error, TimeoutError) else "failure", None, None
            if isinstance(error, Fail):
                kind, delay, retry_after = error.kind, error.delay, error.retry_after
            else:
                _log.warning("job %s of %s failed", job.id, job.tenant, exc_info=not isinstance(error, Discard))
            text = str(error) or type(error).__name__
            discard = isinstance(error, Discard)
            self._client.fail(*at, error=text, kind=kind, ran=ran, cost=job._cost, discard=discard, delay=delay, retry_after=retry_after)
        else:
            if job.cancelled.is_set():
                self._client.release(*at)
                return
            ran = min(time.monotonic() - began, _LONGEST_RAN)
            self._client.complete(*at, ran=ran, result=job._result, keep_result=job._keep, cost=job._cost)

    def _extend(self, ended: threading.Event) -> None:
        """Renew the lease of the session three times as often as it ends, and tell how busy this process is while the policy asks."""
        usage: Optional[Usage] = None
        wait = self._lease / 3
        while not ended.wait(wait):
            wait = self._lease / 3
            with self._changed:
                session = self._session
            if session is None:
                continue
            began = time.monotonic()
            try:
                extended = self._client._extend(session, usage.sample() if usage else {}, self._lease / 4)
                self._heard(session, began)
                usage = (usage or Usage()) if "load_ms" in extended else None
                self._cancel(extended["cancelled"])
            except Conflict:
                self._lost(session)
            except HeadgateError as error:
                usage = None  # A server of before takes no such body.
                _log.warning("the lease is not renewed: %s", error)
                wait = self._lease / 12
                with self._changed:
                    over = time.monotonic() - self._renewed > self._lease * _LEASE_ENDS
                if over:
                    self._lost(session)

    def _finish(self) -> None:
        until = time.monotonic() + self._drain
        with self._changed:
            while self._jobs and time.monotonic() < until:
                self._changed.wait(0.2)

    def _hand_back(self) -> None:
        with self._changed:
            session, left = self._session, list(self._jobs.values())
            self._session = None
        for job in left:
            job.cancelled.set()
        if session is None:
            return
        try:
            self._client.deregister(session)
        except HeadgateError as error:
            _log.warning("the session ends by its lease: %s", error)

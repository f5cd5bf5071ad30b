"""The calls of the API that producers and workers make."""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import ssl
import time
import uuid
from datetime import datetime
from typing import Any, Dict, Iterable, List, Literal, Mapping, Optional, Sequence, Tuple, Union, cast
from urllib.parse import quote, urlsplit

from .connections import Connections
from .errors import HeadgateError, NetworkError, OutcomeUnknown, TooManyRequests, Unavailable, error_of
from .types import BatchResult, BatchResults, Decision, Ended, Extended, Leases, NewJob, NoPermit, Permit, Reservation, Session, Settled, Verdict

MAX_BATCH = 64  # jobs of a call
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.1, 5.0  # seconds
_LONGEST_WAIT = 30.0  # seconds that a call waits because the server says so; who is told more is told by the error


def duration(seconds: float) -> str:
    """Return seconds as the API has durations, to the millisecond and at least one."""
    return f"{max(1, round(seconds * 1000))}ms"


class _NotSent(Exception):
    """There was no connection, so nothing was sent."""


class Client:
    """Calls a server. It keeps connections open between calls, up to 16 for up to 30 s, follows no redirect and never prints its key.

    url and key are those of HEADGATE_URL and HEADGATE_KEY unless given; timeout bounds each call, in seconds; ca_file is a PEM file of the
    authorities that are believed in place of the system's; retries is how often a call that is safe to be sent again is, with backoff and
    jitter, where there is no answer or the server says that it could not.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        key: Optional[str] = None,
        *,
        timeout: float = 10.0,
        ca_file: Optional[str] = None,
        retries: int = 5,
    ) -> None:
        default: str = os.environ.get("HEADGATE_URL", "http://127.0.0.1:9080")
        parts = urlsplit(url or default)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("url: want http://HOST:PORT or https://HOST:PORT, without a user")
        if timeout <= 0 or retries < 0:
            raise ValueError(f"timeout {timeout}, retries {retries}: want more than 0, and 0 or more")
        tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        if ca_file and not tls:
            raise ValueError("ca_file: want it with https alone")
        self._host, self._base = parts.hostname, parts.path.rstrip("/")
        self._connections = Connections(self._host, parts.port, tls)
        self._key = os.environ.get("HEADGATE_KEY", "") if key is None else key
        self._timeout, self._retries = timeout, retries

    def __repr__(self) -> str:
        return f"Client({self._host!r})"

    def close(self) -> None:
        """Close the connections that are kept. The client may be used on."""
        self._connections.close()

    # Producers.

    def enqueue(
        self,
        tenant: str,
        queue: str,
        type: str,
        payload: Any = None,
        *,
        id: Optional[str] = None,
        priority: Optional[str] = None,
        deadline: Optional[datetime] = None,
        cost: Union[int, Literal["learned"], None] = None,
        downstream: Optional[str] = None,
        max_attempts: Optional[int] = None,
        timeout: Optional[float] = None,
        run_at: Optional[datetime] = None,
        delay: Optional[float] = None,
        unique: Optional[Mapping[str, str]] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Verdict:
        """Enqueue a job once, however often the call has to be sent. payload is bytes, or any value that is JSON. Raises Refused."""
        job = self.job(
            tenant, queue, type, payload, id=id, priority=priority, deadline=deadline, cost=cost, downstream=downstream,
            max_attempts=max_attempts, timeout=timeout, run_at=run_at, delay=delay, unique=unique, headers=headers,
        )  # fmt: skip
        return cast(Verdict, self._call("POST", "/api/v1/jobs", job)[0])

    @staticmethod
    def job(
        tenant: str,
        queue: str,
        type: str,
        payload: Any = None,
        *,
        id: Optional[str] = None,
        priority: Optional[str] = None,
        deadline: Optional[datetime] = None,
        cost: Union[int, Literal["learned"], None] = None,
        downstream: Optional[str] = None,
        max_attempts: Optional[int] = None,
        timeout: Optional[float] = None,
        run_at: Optional[datetime] = None,
        delay: Optional[float] = None,
        unique: Optional[Mapping[str, str]] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> NewJob:
        """Return a job for enqueue_batch, with an id of its own unless given. timeout and delay are seconds, datetimes have a zone."""
        made: Dict[str, Any] = {"tenant": tenant, "queue": queue, "type": type, "id": id or str(uuid.uuid4())}
        if isinstance(payload, (bytes, bytearray)):
            made["payload_base64"] = base64.b64encode(payload).decode()
        elif payload is not None:
            made["payload"] = payload
        for name, at in (("deadline", deadline), ("run_at", run_at)):
            if at is not None:
                if at.tzinfo is None:
                    raise ValueError(f"{name}: want a datetime with a zone")
                made[name] = at.isoformat()
        for name, seconds in (("timeout", timeout), ("delay", delay)):
            if seconds is not None:
                made[name] = duration(seconds)
        others: Tuple[Tuple[str, Any], ...] = (
            ("priority", priority), ("cost", cost), ("downstream", downstream), ("max_attempts", max_attempts), ("unique", unique), ("headers", headers),
        )  # fmt: skip
        made.update((name, value) for name, value in others if value is not None)
        return cast(NewJob, made)

    def enqueue_batch(self, jobs: Iterable[NewJob]) -> List[BatchResult]:
        """Enqueue up to 64 jobs by one call, and return what became of each, in their order; nobody is refused for another's sake.

        Jobs of which the server says that they may not be in are sent again, as the whole call is.
        """
        all_jobs = [cast(NewJob, dict(job)) for job in jobs]
        for job in all_jobs:
            job.setdefault("id", str(uuid.uuid4()))
        results: List[Optional[BatchResult]] = [None] * len(all_jobs)
        left = list(range(len(all_jobs)))
        for attempt in range(self._retries + 1):
            body = {"jobs": [all_jobs[i] for i in left]}
            got = cast(BatchResults, self._call("POST", "/api/v1/jobs/batch", body)[0])["results"]
            for i, result in zip(left, got):
                results[i] = result
            left = [i for i, result in zip(left, got) if result["status"] in (503, 504)]
            if not left or attempt == self._retries:
                break
            self._pause(attempt, None)
        return cast(List[BatchResult], results)

    def check(
        self,
        scope: Optional[str] = None,
        tokens: Optional[int] = None,
        *,
        checks: Optional[Sequence[Mapping[str, Any]]] = None,
        priority: Optional[str] = None,
        also: Optional[Mapping[str, str]] = None,
        peek: bool = False,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> Decision:
        """Ask for tokens of a scope, or of several together. A refusal is an answer, with allowed false. also are values of dimensions, by name.

        It is sent again only where nothing can have been charged: a check that is sent twice is charged twice.
        """
        body: Dict[str, Any] = {"peek": peek} if peek else {}
        asked = (("scope", scope), ("tokens", tokens), ("checks", checks), ("priority", priority), ("also", also), ("metadata", metadata))
        body.update((name, value) for name, value in asked if value is not None)
        return cast(Decision, self._call("POST", "/api/v1/rate-limit/check", body, safe=peek)[0])

    def reserve(
        self,
        scope: str,
        tokens: Optional[int] = None,
        *,
        priority: Optional[str] = None,
        also: Optional[Mapping[str, str]] = None,
        reservation: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> Union[Reservation, Decision]:
        """Reserve an estimate of tokens, until commit or cancel; what neither tells within a minute stands. What has no reservation is a refusal.

        Without tokens the server reserves what such work has cost of late.

        It may be sent again, as the id of the reservation is the same.
        """
        body: Dict[str, Any] = {"scope": scope, "reservation": reservation or str(uuid.uuid4())}
        body.update((name, value) for name, value in (("tokens", tokens), ("priority", priority), ("also", also), ("metadata", metadata)) if value is not None)
        return cast(Union[Reservation, Decision], self._call("POST", "/api/v1/rate-limit/reserve", body)[0])

    def commit(self, scope: str, reservation: str, tokens: int, *, final: bool = True) -> Settled:
        """Tell what reserved work has cost, once; while it goes on, not final, what it has used so far, of the whole. Raises NotFound where nothing is known of the reservation."""
        body: Dict[str, Any] = {"scope": scope, "reservation": reservation, "tokens": tokens}
        if not final:
            body["final"] = False
        return cast(Settled, self._call("POST", "/api/v1/rate-limit/commit", body)[0])

    def cancel(self, scope: str, reservation: str) -> Settled:
        """Tell that reserved work did not begin, as commit of 0 tokens."""
        return cast(Settled, self._call("POST", "/api/v1/rate-limit/cancel", {"scope": scope, "reservation": reservation})[0])

    def acquire(
        self, semaphore: str, permits: int = 1, *, lease: float = 30.0, wait: float = 0.0, token: Optional[str] = None
    ) -> Union[Permit, NoPermit]:
        """Lease permits of a semaphore, NAME or TENANT:NAME, all or none. What has no expires_at is a refusal.

        wait is for how long to stand in line, up to 5 s; lease and wait are in seconds. It may be sent again, as the token is the same.
        """
        body: Dict[str, Any] = {"permits": permits, "lease": duration(lease), "token": token or str(uuid.uuid4())}
        if wait > 0:
            body["wait"] = duration(wait)
        got = self._call("POST", _semaphore(semaphore, "acquire"), body, timeout=self._timeout + wait)[0]
        return cast(Union[Permit, NoPermit], got)

    def extend_permits(self, semaphore: str, token: str, *, lease: float = 30.0) -> Permit:
        """Have a lease end so many seconds from now. Raises Conflict where it has ended: then somebody else may hold the permits."""
        return cast(Permit, self._call("POST", _semaphore(semaphore, "extend"), {"token": token, "lease": duration(lease)})[0])

    def release_permits(self, semaphore: str, token: str) -> None:
        """Give permits back. Raises Conflict where their lease had ended by itself."""
        self._call("POST", _semaphore(semaphore, "release"), {"token": token})

    # Workers. Worker makes these calls.

    def register(self, queues: Mapping[str, int], *, strict: bool = False, slots: int = 1, lease: float = 15.0) -> Session:
        """Begin a session for queues, by their weights. lease is in seconds."""
        asked = [{"queue": queue, "weight": weight} for queue, weight in queues.items()]
        body = {"queues": asked, "strict": strict, "slots": slots, "lease": duration(lease)}
        return cast(Session, self._call("POST", "/api/v1/workers", body)[0])

    def deregister(self, worker: str) -> None:
        """End a session: all that it holds is handed back."""
        self._call("DELETE", _session(worker))

    def lease(self, worker: str, max: int = 1, *, wait: float = 0.0, held: bool = False) -> Tuple[Leases, float]:
        """Take up to 16 jobs, and return them with the seconds after which to ask again where there are none.

        It is not sent again: after a call without an answer ask once with held, which hands out again what the session holds.
        """
        body: Dict[str, Any] = {"max": max}
        if wait > 0:
            body["wait"] = duration(wait)
        if held:
            body["held"] = True
        got, retry_after = self._call("POST", _session(worker, "leases"), body, safe=False, timeout=self._timeout + wait)
        return cast(Leases, got), retry_after or 0.0

    def extend(self, worker: str, *, cpu: Optional[float] = None, memory: Optional[float] = None) -> Extended:
        """Renew the leases of all that a session holds.

        cpu and memory are what this process uses of its processors and of its memory, in percent, where the last answer had a load_ms.
        """
        used = {name: percent for name, percent in (("cpu", cpu), ("memory", memory)) if percent is not None}
        return cast(Extended, self._call("POST", _session(worker, "extend"), used or None)[0])

    def _extend(self, worker: str, used: Mapping[str, float], timeout: float) -> Extended:
        """Renew the leases by one call that leaves time for another."""
        try:
            return cast(Extended, self._once("POST", _session(worker, "extend"), used or None, min(timeout, self._timeout))[0])
        except _NotSent as error:
            raise NetworkError(str(error.__cause__)) from error

    def complete(
        self,
        worker: str,
        tenant: str,
        id: str,
        token: str,
        *,
        ran: Optional[float] = None,
        result: Optional[bytes] = None,
        keep_result: Optional[float] = None,
        cost: Optional[int] = None,
    ) -> Ended:
        """Say that a job is done. cost is what it cost in truth. Raises Conflict where the lease is over, or where an earlier try arrived."""
        body = _ending(tenant, id, token, ran, cost)
        if result is not None:
            body["result_base64"] = base64.b64encode(result).decode()
            if keep_result is not None:
                body["keep_result"] = duration(keep_result)
        return cast(Ended, self._call("POST", _session(worker, "complete"), body)[0])

    def fail(
        self,
        worker: str,
        tenant: str,
        id: str,
        token: str,
        *,
        error: str = "",
        kind: str = "failure",
        ran: Optional[float] = None,
        cost: Optional[int] = None,
        discard: bool = False,
        delay: Optional[float] = None,
        retry_after: Optional[float] = None,
    ) -> Ended:
        """Say that a job failed. kind is failure, timeout, own or throttled: its downstream refused the call as one too many; delay the
        seconds until it is tried again, retry_after what a downstream that refused the call said."""
        body = {**_ending(tenant, id, token, ran, cost), "error": error[:1024], "kind": kind, "discard": discard}
        if delay is not None:
            body["delay"] = duration(delay)
        if retry_after is not None:
            body["retry_after"] = duration(retry_after)
        return cast(Ended, self._call("POST", _session(worker, "fail"), body)[0])

    def release(self, worker: str, tenant: str, id: str, token: str, *, delay: Optional[float] = None) -> Ended:
        """Hand a job back, for now or for some seconds. No attempt is burnt."""
        body = _ending(tenant, id, token, None, None)
        if delay is not None:
            body["delay"] = duration(delay)
        return cast(Ended, self._call("POST", _session(worker, "release"), body)[0])

    # All calls.

    def _call(
        self, method: str, path: str, body: Optional[Mapping[str, Any]] = None, *, safe: bool = True, timeout: Optional[float] = None
    ) -> Tuple[Any, Optional[float]]:
        """Make a call, and again while that is safe and may help. safe says that it may be sent twice."""
        for attempt in range(self._retries + 1):
            try:
                return self._once(method, path, body, timeout or self._timeout)
            except _NotSent as error:
                failed: HeadgateError = NetworkError(str(error.__cause__))
            except (TooManyRequests, Unavailable) as error:  # Nothing was done.
                failed = error
            except (NetworkError, OutcomeUnknown) as error:
                if not safe:
                    raise
                failed = error
            if attempt == self._retries or (failed.retry_after or 0) > _LONGEST_WAIT:
                raise failed
            self._pause(attempt, failed.retry_after)
        raise AssertionError("unreachable")

    def _pause(self, attempt: int, retry_after: Optional[float]) -> None:
        most = min(_LONGEST_BACKOFF, _FIRST_BACKOFF * 2**attempt)
        time.sleep(max(retry_after or 0.0, random.uniform(most / 2, most)))

    def _once(self, method: str, path: str, body: Optional[Mapping[str, Any]], timeout: float) -> Tuple[Any, Optional[float]]:
        headers = {"Accept": "application/json", "User-Agent": "headgate-python"}
        if self._key:
            headers["Authorization"] = "Bearer " + self._key
        text: Union[bytes, None] = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            text = json.dumps(body, separators=(",", ":")).encode()
        try:
            connection = self._connections.take(timeout)
        except ssl.SSLCertVerificationError as error:
            raise HeadgateError(f"the server's certificate is not believed: {error.verify_message}") from error
        except OSError as error:
            raise _NotSent from error
        keep = False
        try:
            connection.request(method, self._base + path, body=text, headers=headers)
            response = connection.getresponse()
            answer = response.read()
            keep = not response.will_close
        except (OSError, http.client.HTTPException) as error:
            raise NetworkError(f"no answer: {error or type(error).__name__}") from error
        finally:
            if keep:
                self._connections.give(connection)
            else:
                connection.close()
        after = response.headers.get("Retry-After", "")
        retry_after = float(after) if after.isdigit() else None
        kind = response.headers.get_content_type()
        value = _read(answer) if kind in ("application/json", "application/problem+json") else None
        if response.status < 300:
            if response.status != 204 and not isinstance(value, dict):
                raise NetworkError(f"the answer is no JSON object: {self._host} is another server")
            return value, retry_after
        if response.status == 429 and isinstance(value, dict) and ("allowed" in value or "position" in value):
            return value, retry_after  # A check that was refused is an answer, as is a semaphore without room.
        raise error_of(response.status, value if isinstance(value, dict) else {}, retry_after)


def _read(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise NetworkError("the answer is no JSON") from error


def _semaphore(name: str, call: str) -> str:
    return "/api/v1/semaphores/" + quote(name, safe="") + "/" + call


def _session(worker: str, call: str = "") -> str:
    return "/api/v1/workers/" + quote(worker, safe="") + ("/" + call if call else "")


def _ending(tenant: str, id: str, token: str, ran: Optional[float], cost: Optional[int]) -> Dict[str, Any]:
    body: Dict[str, Any] = {"tenant": tenant, "id": id, "token": token}
    if ran is not None:
        body["ran"] = duration(ran)
    if cost is not None:
        body["cost"] = cost
    return body

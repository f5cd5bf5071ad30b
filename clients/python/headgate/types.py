"""The bodies of the API, by the names and with the members that its description has; a test holds them equal."""

from __future__ import annotations

from typing import Any, Dict, List, TypedDict


class _NewJob(TypedDict):
    tenant: str
    queue: str
    type: str


class NewJob(_NewJob, total=False):
    id: str
    priority: str
    deadline: str
    cost: int
    downstream: str
    max_attempts: int
    timeout: str
    run_at: str
    delay: str
    unique: Dict[str, str]
    payload: Any
    payload_base64: str
    headers: Dict[str, str]


class _Verdict(TypedDict):
    id: str
    decision: str


class Verdict(_Verdict, total=False):
    place: str
    position: int
    estimated_wait_ms: float
    bypassed: bool
    dropped: int
    unreplicated: bool


class _BatchResult(TypedDict):
    id: str
    status: int


class BatchResult(_BatchResult, total=False):
    verdict: Verdict
    problem: Dict[str, Any]


class BatchResults(TypedDict):
    results: List[BatchResult]
    admitted: int
    duplicates: int
    refused: int
    failed: int


class _Decision(TypedDict):
    allowed: bool
    consumed: bool
    source: str  # exact, leased, cached or blind
    answers: List[Dict[str, Any]]
    tokens_consumed: int
    wait_time_ms: float
    timestamp: str


class Decision(_Decision, total=False):
    scope: str
    tokens_remaining: float
    bucket_capacity: int
    refill_rate: float
    error: Dict[str, str]


class _Reservation(TypedDict):
    reservation: str
    scope: str
    tokens: int
    again: bool
    buckets: List[Dict[str, Any]]


class Reservation(_Reservation, total=False):
    expire_after_ms: int  # for how long the cost may be told; a minute where it is not there


class Settled(TypedDict):
    reservation: str
    reserved: int
    tokens: int
    result: str  # committed, committed_before, too_late or policy_changed


class Permit(TypedDict):
    token: str
    expires_at: str
    limit: int
    held: int
    remaining: int


class _NoPermit(TypedDict):
    reason: str  # waiting, refused or crowded
    limit: int
    held: int
    position: int


class NoPermit(_NoPermit, total=False):
    token: str


class Session(TypedDict):
    worker: str
    pool: str
    slots: int
    lease_ms: float


class _Lease(TypedDict):
    tenant: str
    id: str
    token: str
    queue: str
    type: str
    attempts: int
    payload_base64: str


class Lease(_Lease, total=False):
    downstream: str
    deadline: str
    timeout_ms: float
    headers: Dict[str, str]


class _Leases(TypedDict):
    jobs: List[Lease]
    cancelled: List[Dict[str, str]]


class Leases(_Leases, total=False):
    partial: bool


class _Extended(TypedDict):
    lease_ms: float
    cancelled: List[Dict[str, str]]


class Extended(_Extended, total=False):
    load_ms: float


class Ended(TypedDict):
    tenant: str
    id: str
    outcome: str

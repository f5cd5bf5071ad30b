"""Client and worker for Headgate's HTTP API.

Client enqueues jobs, asks limits and holds sessions of workers; Worker runs handlers in threads and keeps their leases.
Both may be used by several threads.
"""

from .client import Client
from .errors import (
    Conflict,
    Forbidden,
    HeadgateError,
    InvalidRequest,
    NetworkError,
    NotFound,
    OutcomeUnknown,
    Refused,
    RefusedForGood,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from .types import BatchResult, BatchResults, Decision, Ended, Extended, Lease, Leases, NewJob, NoPermit, Permit, Reservation, Session, Settled, Verdict
from .worker import Discard, Fail, Job, Snooze, Worker

__all__ = [
    "BatchResult",
    "BatchResults",
    "Client",
    "Conflict",
    "Decision",
    "Discard",
    "Ended",
    "Extended",
    "Fail",
    "Forbidden",
    "HeadgateError",
    "InvalidRequest",
    "Job",
    "Lease",
    "Leases",
    "NetworkError",
    "NewJob",
    "NoPermit",
    "NotFound",
    "OutcomeUnknown",
    "Permit",
    "Refused",
    "RefusedForGood",
    "Reservation",
    "Session",
    "Settled",
    "Snooze",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "Verdict",
    "Worker",
]

"""What calls fail with. Each kind of problem (RFC 9457) that a caller tells apart is a class."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

_PREFIX = "urn:headgate:problem:"


class HeadgateError(Exception):
    """A call that failed.

    kind is the problem's, such as "refused"; status that of HTTP, 0 where there was no answer; reason why a job was refused, such as
    "limited"; retry_after the seconds to wait before the same may pass, None where nobody knows; errors what is wrong with a request;
    request_id what the server's log has.
    """

    def __init__(self, detail: str, *, status: int = 0, problem: Optional[Mapping[str, Any]] = None, retry_after: Optional[float] = None) -> None:
        problem = problem or {}
        super().__init__(detail)
        self.status = status
        self.kind: str = str(problem.get("type", "")).replace(_PREFIX, "", 1)
        self.detail = detail
        self.reason: Optional[str] = problem.get("reason")
        self.request_id: Optional[str] = problem.get("request_id")
        self.errors: List[Dict[str, Any]] = list(problem.get("errors", ()))
        exact = problem.get("retry_after_ms")
        self.retry_after: Optional[float] = retry_after if exact is None else exact / 1000

    def __str__(self) -> str:
        faults = "; ".join(f"{e.get('pointer', e.get('parameter', ''))} {e['detail']}" for e in self.errors)
        return f"{self.kind or 'error'}: {self.detail}" + (f" ({faults})" if faults else "")


class NetworkError(HeadgateError):
    """No answer came. What was asked may have been done."""


class InvalidRequest(HeadgateError):
    """The request is not as the API describes it; errors has what is wrong."""


class Unauthenticated(HeadgateError):
    """The key is not valid."""


class Forbidden(HeadgateError):
    """The role of the key does not allow the call."""


class NotFound(HeadgateError):
    """There is nothing like that, or it is of another tenant."""


class Conflict(HeadgateError):
    """The state does not allow it; of a worker's calls: the lease is over, the job runs elsewhere or has ended."""


class TooManyRequests(HeadgateError):
    """The key, or whoever calls through a proxy, makes more calls than it may. Nothing was done."""


class Refused(HeadgateError):
    """A job was refused: reason says why, retry_after when to come back."""


class RefusedForGood(Refused):
    """The same job will never be taken."""


class Unavailable(HeadgateError):
    """The server could not do it now. Nothing was done."""


class OutcomeUnknown(HeadgateError):
    """Redis gave no answer in time, or a proxy has none: it may have been done. The same id may be sent again."""


_BY_KIND = {
    "unauthenticated": Unauthenticated,
    "forbidden": Forbidden,
    "not-found": NotFound,
    "conflict": Conflict,
    "too-many-requests": TooManyRequests,
    "refused": Refused,
    "refused-for-good": RefusedForGood,
    "outcome-unknown": OutcomeUnknown,
    "unavailable": Unavailable,
    "busy": Unavailable,
}
# What is no problem of the server's is of a proxy, which may say 502 to 504 of a call that it has passed on.
_BY_STATUS = {400: InvalidRequest, 413: InvalidRequest, 415: InvalidRequest, 429: TooManyRequests, 502: OutcomeUnknown, 503: OutcomeUnknown, 504: OutcomeUnknown}


def error_of(status: int, problem: Mapping[str, Any], retry_after: Optional[float] = None) -> HeadgateError:
    """Return the error that a problem of a status is."""
    kind = str(problem.get("type", "")).replace(_PREFIX, "", 1)
    made = _BY_KIND.get(kind) or _BY_STATUS.get(status) or HeadgateError
    return made(str(problem.get("detail") or f"status {status}"), status=status, problem=problem, retry_after=retry_after)

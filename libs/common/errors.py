"""Errors of the library, and what the runtime does with each.

```
SlipwayError
├── ConfigError                no usable connection: said once, the process ends
├── ApiError                   the API server said no
│   ├── BadRequest      400    a bug of ours: backed off, shown
│   ├── Unauthorized    401    backed off; credentials are read again each minute
│   ├── Forbidden       403    RBAC or admission: condition, backed off
│   ├── NotFound        404
│   ├── AlreadyExists   409    the create lock is taken
│   ├── Conflict        409    resourceVersion, UID or field owner differ
│   ├── Expired         410    list again
│   ├── Invalid         422    schema or CEL refused the object
│   ├── TooManyRequests 429    retried by the client after Retry-After
│   └── ServerError     5xx
├── CreateError                an object cannot be had by its name
│   ├── ForeignObject          the name is somebody else's: nothing is touched
│   └── Unacceptable           what admission made of a new object: taken back, backed off
├── Unreachable                a read got no response: backed off
├── UnknownOutcome             a write was sent, the response was lost: looked up
├── NotLeading                 the Lease is lost: nothing is written any more
├── TransientError             try again, after `retry_after` if given
└── TerminalError              trying again is of no use until the spec changes
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libs.common.kinds import Key, Kind, describe


class SlipwayError(Exception):
    """Base of every error that the library raises on purpose."""


class ConfigError(SlipwayError):
    """No connection to a cluster can be configured; the message says what to set."""


class ApiError(SlipwayError):
    """The API server answered with a failure status.

    Attributes:
        status: HTTP status code.
        reason: `Status.reason`, such as `NotFound`; empty when the response had none.
        message: `Status.message`, or the start of the body.
        details: `Status.details` as sent.
        retry_after: Seconds that the server asks to wait, or None.
        operation: What was asked, such as `PATCH /api/v1/namespaces/x/pods/y`.
    """

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
        operation: str = "",
    ) -> None:
        """Keep the parts of the response; the text is built here, not at the raise."""
        self.status = status
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after
        self.operation = operation
        super().__init__(f"{operation}: {status} {reason}: {message}".strip(": "))

    def causes(self) -> list[tuple[str, str]]:
        """Return `(field, message)` of each cause that the server named."""
        return [
            (str(cause.get("field", "")), str(cause.get("message", "")))
            for cause in self.details.get("causes") or ()
        ]


class BadRequest(ApiError):
    """The request makes no sense to the server (400)."""


class Unauthorized(ApiError):
    """The credentials are not, or no longer, valid (401)."""


class Forbidden(ApiError):
    """RBAC, a quota or an admission policy refused the request (403)."""


class NotFound(ApiError):
    """The object, or its kind, does not exist (404)."""


class AlreadyExists(ApiError):
    """An object of that name exists (409 with reason AlreadyExists)."""


class Conflict(ApiError):
    """A precondition failed or another manager owns a field (409)."""


class Expired(ApiError):
    """The resource version or continue token is too old (410)."""


class Invalid(ApiError):
    """The object was refused by its schema or its rules (422)."""


class TooManyRequests(ApiError):
    """The server asks to slow down (429)."""


class ServerError(ApiError):
    """The server failed (5xx)."""


class CreateError(SlipwayError):
    """An object cannot be had by the name that it was to have.

    Attributes:
        kind: Kind of the object.
        key: Key of the object.
    """

    def __init__(self, kind: Kind, key: Key, what: str) -> None:
        """Say which object, and what is the matter with it."""
        self.kind = kind
        self.key = key
        super().__init__(f"{describe(kind, key)} {what}")


class ForeignObject(CreateError):
    """The name is taken by an object that somebody else controls; it is left alone."""

    def __init__(self, kind: Kind, key: Key, holder: str) -> None:
        """Say which object is in the way, and whose it is."""
        remedy = "delete it or choose another name; the operator never takes over such an object"
        super().__init__(kind, key, f"exists and is {holder}; {remedy}")


class Unacceptable(CreateError):
    """Admission made something of a new object that its owner cannot live with."""

    def __init__(self, kind: Kind, key: Key, objection: str) -> None:
        """Say which object was taken back, and why."""
        super().__init__(kind, key, f"was deleted again: {objection}")


class UnknownOutcome(SlipwayError):
    """A write was sent and no response came back: it may or may not have happened.

    Attributes:
        operation: What was asked.
    """

    def __init__(self, operation: str, cause: str) -> None:
        """Name the request whose answer was lost, and how."""
        self.operation = operation
        super().__init__(f"{operation}: no response ({cause}); the outcome is unknown")


class Unreachable(SlipwayError):
    """The API server could not be reached, or a read got no response in time."""

    def __init__(self, operation: str, cause: str) -> None:
        """Name the request that was not answered, and why."""
        self.operation = operation
        super().__init__(f"{operation}: cannot reach the API server ({cause})")


class NotLeading(SlipwayError):
    """This process does not lead, or no longer knows that it does: it must not write."""

    def __init__(self) -> None:
        """Say why a write was held back."""
        super().__init__("Request not sent: this process no longer holds the Lease")


class TransientError(SlipwayError):
    """The reconcile cannot succeed now; trying again may help.

    Attributes:
        retry_after: Seconds to wait; None means the exponential back-off of the key.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        """Say what is missing and, where known, when to look again."""
        super().__init__(message)
        self.retry_after = retry_after


class TerminalError(SlipwayError):
    """The reconcile cannot succeed until a person changes something.

    Attributes:
        reason: UpperCamel reason for the condition and the event.
        field: Path of the field to change, such as `spec.size`; empty when no field is to blame.
    """

    def __init__(self, reason: str, message: str, *, field: str = "") -> None:
        """Carry the words that the condition will show."""
        super().__init__(message)
        self.reason = reason
        self.field = field


def api_error(
    status: int,
    body: Mapping[str, Any],
    *,
    operation: str,
    retry_after: float | None = None,
) -> ApiError:
    """Build the error class that fits a failure answer.

    Args:
        status: HTTP status code; a `Status` object in the body wins over it.
        body: Decoded answer; a `Status` object, or anything else.
        operation: What was asked.
        retry_after: Parsed `Retry-After` header in seconds.
    """
    code = body.get("code")
    status = code if isinstance(code, int) and code >= 400 else status
    reason = str(body.get("reason") or "")
    cls = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    if status == 409 and reason == "AlreadyExists":
        cls = AlreadyExists
    return cls(
        status,
        reason,
        str(body.get("message") or ""),
        details=body.get("details"),
        retry_after=retry_after,
        operation=operation,
    )


def patch_error(err: Invalid) -> ApiError:
    """Tell a JSON patch that does not fit the object from one that makes it invalid.

    A failed `test`, or a path that is not there, is answered by 422 without causes: the object is
    not what was looked at. That is a conflict. Rules of the schema name their causes.
    """
    if err.details.get("causes"):
        return err
    return Conflict(409, "Conflict", str(err), details=err.details, operation=err.operation)


def apply_error(err: Invalid) -> ApiError:
    """Tell an apply to another incarnation of an object from one that makes it invalid.

    The server answers a UID that is not the live one by 422, as if somebody wanted to change it.
    """
    if {field for field, _ in err.causes()} != {"metadata.uid"}:
        return err
    return Conflict(409, "Conflict", err.message, details=err.details, operation=err.operation)


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}

"""Errors of the library, and how the runtime handles each.

```
SlipwayError
├── ConfigError                no usable connection: said once, the process ends
├── ApiError                   the API server said no
│   ├── BadRequest      400    a bug of ours: backed off, shown
│   ├── Unauthorized    401    backed off; credentials are read again each minute
│   ├── Forbidden       403    RBAC, or admission with any code: condition, backed off
│   ├── NotFound        404
│   ├── AlreadyExists   409    the create lock is taken
│   ├── Conflict        409    resourceVersion, UID or field owner differ
│   ├── Expired         410    list again
│   ├── Invalid         422    schema or CEL refused the object
│   ├── TooManyRequests 429    retried by the client after Retry-After
│   └── ServerError     5xx
├── CreateError                an object cannot be had by its name
│   ├── ForeignObject          the name is somebody else's: nothing is touched
│   └── MutatedByAdmission     admission changed a new object: deleted again, backed off
├── Unreachable                a read got no response: backed off
├── UnknownOutcome             a write was sent, the response was lost: looked up
├── NotLeading                 the Lease is lost: nothing is written any more
├── ClientClosed               the client was closed: nothing is sent any more
├── TransientError             try again, after `retry_after` if given
└── TerminalError              trying again is of no use until the spec changes
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from libs.common.kinds import Key, Kind, describe


class SlipwayError(Exception):
    """Base class of all errors of the library."""


class ConfigError(SlipwayError):
    """No connection to a cluster can be configured; the message says what to set."""


class ApiError(SlipwayError):
    """The API server returned an error status.

    Attributes:
        status: HTTP status code.
        reason: `Status.reason`, such as `NotFound`; empty if the response had none.
        message: `Status.message`, or the beginning of the body.
        details: `Status.details` as sent.
        retry_after: Seconds that the server requests to wait, or None.
        operation: The request, such as `PATCH /api/v1/namespaces/x/pods/y`.
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
        """Store the parts of the response, and build the message."""
        self.status = status
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after
        self.operation = operation
        super().__init__(f"{operation}: {status} {reason}: {message}".strip(": "))

    def causes(self) -> list[tuple[str, str]]:
        """Return `(field, message)` of each cause in the response."""
        return [
            (str(cause.get("field", "")), str(cause.get("message", "")))
            for cause in self.details.get("causes") or ()
        ]


class BadRequest(ApiError):
    """The request is malformed (400)."""


class Unauthorized(ApiError):
    """The credentials are invalid or have expired (401)."""


class Forbidden(ApiError):
    """RBAC, a quota, or admission refused the request (403, webhooks and policies: any code)."""


class NotFound(ApiError):
    """The object, or its kind, does not exist (404)."""


class AlreadyExists(ApiError):
    """An object with this name exists (409 with reason AlreadyExists)."""


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
    """An object cannot be created with its name.

    Attributes:
        kind: Kind of the object.
        key: Key of the object.
    """

    def __init__(self, kind: Kind, key: Key, what: str) -> None:
        """Build the message from the object and the problem."""
        self.kind = kind
        self.key = key
        super().__init__(f"{describe(kind, key)} {what}")


class ForeignObject(CreateError):
    """An object with the name exists and belongs to somebody else; it is not changed."""

    def __init__(self, kind: Kind, key: Key, holder: str) -> None:
        """Build the message from the object and its owner."""
        remedy = "rename one of them; the operator does not change objects of others"
        super().__init__(kind, key, f"exists and is {holder}; {remedy}")


class MutatedByAdmission(CreateError):
    """Admission changed a new object in a way that its owner cannot accept."""

    def __init__(self, kind: Kind, key: Key, objection: str) -> None:
        """Build the message from the object that was deleted again and the reason."""
        super().__init__(kind, key, f"was deleted again: {objection}")


class UnknownOutcome(SlipwayError):
    """A write was sent and no response was received: it may or may not have been executed."""

    def __init__(self, operation: str, cause: str) -> None:
        """Build the message from the request and the cause."""
        self.operation = operation
        super().__init__(f"{operation}: no response ({cause}); the outcome is unknown")


class Unreachable(SlipwayError):
    """The API server could not be reached, or a read got no response in time."""

    def __init__(self, operation: str, cause: str) -> None:
        """Build the message from the request and the cause."""
        self.operation = operation
        super().__init__(f"{operation}: cannot reach the API server ({cause})")


class NotLeading(SlipwayError):
    """This process is not the leader, or cannot be sure that it is: it must not write."""

    def __init__(self) -> None:
        """Build the message from the reason."""
        super().__init__("Request not sent: this process no longer holds the Lease")


class ClientClosed(SlipwayError):
    """The client was closed before the request was sent."""

    def __init__(self, operation: str) -> None:
        """Build the message from the request."""
        super().__init__(f"{operation}: not sent, because this client was closed")


class TransientError(SlipwayError):
    """The reconcile cannot succeed now; a retry may succeed.

    Attributes:
        retry_after: Seconds to wait; None or 0 means the exponential back-off of the key.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        """Build the error from a message and the seconds until the retry; 0 means not known."""
        super().__init__(message)
        self.retry_after = retry_after


class TerminalError(SlipwayError):
    """The reconcile cannot succeed until a person changes something.

    Attributes:
        reason: UpperCamel reason for the condition and the event.
        field: Path of the field to change, such as `spec.size`; empty if no field is the cause.
        status: Fields of the status that the reconcile could compute nevertheless, with their
            `conditions` as `Condition`. The runtime sets all other conditions to Unknown.
    """

    def __init__(self, reason: str, message: str, *, field: str = "") -> None:
        """Store the reason and message for the condition."""
        super().__init__(message)
        self.reason = reason
        self.field = field
        self.status: Mapping[str, Any] = {}


def api_error(
    status: int,
    body: Mapping[str, Any],
    *,
    operation: str,
    retry_after: float | None = None,
) -> ApiError:
    """Build the error for an error response.

    Args:
        status: HTTP status code; a `Status` object in the body has precedence.
        body: Decoded body: a `Status` object, or anything else.
        operation: The request.
        retry_after: Parsed `Retry-After` header in seconds.
    """
    code = body.get("code")
    status = code if isinstance(code, int) and code >= 400 else status
    reason = str(body.get("reason") or "")
    cls = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    if status == 409 and reason == "AlreadyExists":
        cls = AlreadyExists
    elif cls not in (BadRequest, Invalid) and _DENIED.search(str(body.get("message"))):
        cls = Forbidden
    return cls(
        status,
        reason,
        str(body.get("message") or ""),
        details=body.get("details"),
        retry_after=retry_after,
        operation=operation,
    )


def patch_error(err: Invalid) -> ApiError:
    """Return Conflict for a JSON patch that does not match the object, else the given error.

    If a `test` fails or a path does not exist, the server returns 422 without causes and with one
    sentence for all of them: the object has changed since it was read, which is a conflict. Errors
    of schema validation have causes, and a webhook that answers 422 has a sentence of its own.
    """
    if err.details.get("causes") or err.message != _UNFIT_PATCH:
        return err
    return Conflict(409, "Conflict", str(err), details=err.details, operation=err.operation)


def apply_error(err: Invalid) -> ApiError:
    """Return Conflict for an apply to another incarnation of an object, else the given error.

    The server returns 422 for a UID that differs from the live UID, as for an attempt to change it.
    """
    if {field for field, _ in err.causes()} != {"metadata.uid"}:
        return err
    return Conflict(409, "Conflict", err.message, details=err.details, operation=err.operation)


_UNFIT_PATCH: Final = "the server rejected our request due to an error in our request"
"""Message of kube-apiserver for a JSON patch that cannot be executed."""
_DENIED: Final = re.compile(
    r"^admission webhook \S+ denied the request|: ValidatingAdmissionPolicy .* denied request: "
)
"""Message of kube-apiserver for the refusal of a webhook or policy, which chooses the code. A 404,
409, 500 or 504 of the server itself means that the object does not exist, has changed, or may have
been written; that of a webhook means none of this, and is repeated for the same object."""
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

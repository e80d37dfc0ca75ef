"""Failure answers of the API server, in its own words.

Every refusal is one exception, `StatusError`, whose body is a `Status` object with the code, the
reason, the message and the details that a real kube-apiserver sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from libs.common.kinds import Manifest

if TYPE_CHECKING:
    from libs.common.testing.fakeapi.registry import Resource


@dataclass(frozen=True, slots=True)
class Cause:
    """One refused field, and the reason.

    Attributes:
        field: Path such as `spec.replicas`.
        message: What is wrong, without the path.
        reason: Such as `FieldValueInvalid`.
    """

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class StatusError(Exception):
    """A refused request, with the `Status` that the client receives.

    Attributes:
        code: HTTP status code.
        body: The `Status` object.
        retry_after: Seconds for the `Retry-After` header, or None.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Manifest | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Build the `Status` object; `retry_after` also goes into its details."""
        self.code = code
        self.retry_after = retry_after
        self.body: Manifest = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            "code": code,
        }
        if details is not None or retry_after is not None:
            self.body["details"] = dict(details or {})
        if retry_after is not None:
            self.body["details"]["retryAfterSeconds"] = int(retry_after)
        super().__init__(f"{code} {reason}: {message}")


def qualified(resource: Resource) -> str:
    """Name a resource as error messages do: `pods`, `leases.coordination.k8s.io`."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _details(resource: Resource, name: str, *, kind: str = "") -> Manifest:
    details: Manifest = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    details["kind"] = kind or resource.plural
    return details


def not_found(resource: Resource, name: str) -> StatusError:
    """Refuse with 404 because the object does not exist."""
    return StatusError(
        404,
        "NotFound",
        f'{qualified(resource)} "{name}" not found',
        details=_details(resource, name),
    )


def no_such_path() -> StatusError:
    """Refuse with 404 because no such group, version or resource is served."""
    return StatusError(
        404, "NotFound", "the server could not find the requested resource", details={}
    )


def already_exists(resource: Resource, name: str) -> StatusError:
    """Refuse with 409 because the name is taken."""
    return StatusError(
        409,
        "AlreadyExists",
        f'{qualified(resource)} "{name}" already exists',
        details=_details(resource, name),
    )


def conflict(resource: Resource, name: str, why: str = "") -> StatusError:
    """Refuse with 409 because the object is not what the client thought."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try "
        "again"
    )
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}',
        details=_details(resource, name),
    )


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> StatusError:
    """Refuse with 422 and say which fields are wrong."""
    lines = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    text = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = _details(resource, name, kind=resource.kind)
    details["causes"] = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field}
        for cause in sorted(causes, key=attrgetter("field"))
    ]
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details=details)


def unversioned(resource: Resource, name: str) -> StatusError:
    """Refuse an update that does not say which resource version it replaces."""
    cause = Cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
    error = invalid(resource, name, [cause])
    error.body["message"] = (
        f'{qualified(resource)} "{name}" is invalid: {cause.field}: {cause.message}'
    )
    error.body["details"]["kind"] = resource.plural
    return error


def failed_precondition(resource: Resource, name: str, why: str) -> StatusError:
    """Refuse a deletion with 409 because of its preconditions."""
    error = conflict(resource, name, why)
    error.body["message"] = f'Operation cannot be fulfilled on {resource.kind} "{name}": {why}'
    error.body["details"]["kind"] = resource.kind
    return error


def invalid_options(kind: str, cause: Cause) -> StatusError:
    """Refuse with 422 because an option of the request is wrong."""
    return StatusError(
        422,
        "Invalid",
        f'{kind}.meta.k8s.io "" is invalid: {cause.field}: {cause.message}',
        details={
            "group": "meta.k8s.io",
            "kind": kind,
            "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field}],
        },
    )


def bad_request(message: str) -> StatusError:
    """Refuse with 400 because the request makes no sense."""
    return StatusError(400, "BadRequest", message)


def internal(message: str) -> StatusError:
    """Refuse with 500, which the real server also uses for some bad requests."""
    return StatusError(500, "", message)


def forbidden(
    resource: Resource, name: str, why: str, causes: Sequence[Manifest] = ()
) -> StatusError:
    """Refuse with 403 because of RBAC or admission."""
    details = _details(resource, name)
    if causes:
        details["causes"] = list(causes)
    named = f'{qualified(resource)} "{name}"' if name else qualified(resource)
    return StatusError(403, "Forbidden", f"{named} is forbidden: {why}", details=details)


def namespace_terminating(resource: Resource, name: str, namespace: str) -> StatusError:
    """Refuse with 403 to create an object in a namespace that is being deleted."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    return forbidden(resource, name, why, [cause])


def expired(message: str, token: str = "") -> StatusError:
    """Refuse with 410 because a resource version or continue token is too old."""
    error = StatusError(410, "Expired", message)
    if token:
        error.body["metadata"] = {"continue": token}
    return error


def unsupported_media_type(message: str) -> StatusError:
    """Refuse with 415 because the patch type is not supported."""
    return StatusError(415, "UnsupportedMediaType", message)


def method_not_allowed() -> StatusError:
    """Refuse with 405 because the resource does not support the verb."""
    return StatusError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        details={},
    )


def success(resource: Resource, name: str, uid: str) -> Manifest:
    """Build the `Status` that a completed deletion answers with."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**_details(resource, name), "uid": uid},
    }

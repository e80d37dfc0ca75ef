"""Errors of queries to the admin API; no message contains text from the broker.

Only `AdminBusy.explanation` does, for logs.

```
AdminError
├── AdminUnreachable     no response, or none in time
├── AdminAddressRefused  the operator must not connect to the address
├── AdminRedirected      a redirect that is not followed
├── AdminUnauthorized    401: the credentials are not accepted
├── AdminForbidden       403: the credentials lack a permission
├── AdminNotFound        404
├── AdminConflict        409: the object already exists
│   └── AdminPrecondition  412: it is in use, or a topic is missing that cannot be created
├── AdminFailed          any other status
│   └── AdminBusy        429 or 5xx: retry later
└── AdminMisunderstood   not a response of a Pulsar broker
    └── AdminTooLong     a response that exceeds the limit
```
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Final

import orjson

from libs.common.redaction import redact_text


class AdminError(Exception):
    """The admin API could not be queried, or refused."""


class AdminUnreachable(AdminError):
    """There was no response, or none in time."""


class AdminAddressRefused(AdminError):
    """The operator must not connect to the address."""


class AdminRedirected(AdminError):
    """The broker redirects to another host, to which the operator does not connect."""


class AdminUnauthorized(AdminError):
    """The credentials are not accepted."""


class AdminForbidden(AdminError):
    """The credentials are valid but lack a permission."""


class AdminNotFound(AdminError):
    """The requested object does not exist."""


class AdminConflict(AdminError):
    """The object already exists, or is in use."""


class AdminPrecondition(AdminConflict):
    """The state of the topic does not allow it.

    A subscription has consumers, or its topic is missing and the broker does not create topics.
    """


class AdminFailed(AdminError):
    """The broker returned an error."""


class AdminBusy(AdminFailed):
    """The broker is temporarily unable, for example while a topic moves to another broker.

    Attributes:
        explanation: What the broker says about it, without credentials and in one line; for logs
            only.
    """

    def __init__(self, message: str, explanation: str = "") -> None:
        """Initialize; a traceback shows the explanation, `str` does not."""
        super().__init__(message)
        self.explanation = explanation
        if explanation:
            self.add_note(f"The broker says: {explanation}")


class AdminMisunderstood(AdminError):
    """The response is not the response of a Pulsar broker."""


class AdminTooLong(AdminMisunderstood):
    """The response exceeds the limit."""


_MESSAGE: Final = re.compile(r"^Message: (.*)", re.MULTILINE)
_READ: Final = 4096
_EXPLANATION: Final = 300
"""Maximum number of characters of an explanation."""
_TOO_MANY: Final = 429
_FIRST_OF_SERVER: Final = 500
_BY_STATUS: Final[Mapping[int, type[AdminError]]] = {
    401: AdminUnauthorized,
    403: AdminForbidden,
    404: AdminNotFound,
    409: AdminConflict,
    412: AdminPrecondition,
}


def error_of_status(status: int, operation: str, content: bytes = b"") -> AdminError:
    """Build the error for a response with an error status."""
    message = f"{operation}: status {status}"
    if status == _TOO_MANY or status >= _FIRST_OF_SERVER:
        return AdminBusy(message, _explain(content))
    return _BY_STATUS.get(status, AdminFailed)(message)


def _explain(content: bytes) -> str:
    """Return what a response says, in one bounded line and without credentials.

    The reason of an unexpected error is a text with a line `Message: ...` and a stack trace.
    """
    text = content[:_READ].decode(errors="replace")
    with contextlib.suppress(orjson.JSONDecodeError):
        response = orjson.loads(content)
        text = str(response.get("reason", "")) if isinstance(response, dict) else ""
    found = _MESSAGE.search(text)
    line = " ".join((found[1] if found else text).split())
    return redact_text("".join(filter(str.isprintable, line)))[:_EXPLANATION]

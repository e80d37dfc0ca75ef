"""Errors of queries to the admin API; no message contains text from the broker.

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

from collections.abc import Mapping
from typing import Final


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
    """The broker is temporarily unable, for example while a topic moves to another broker."""


class AdminMisunderstood(AdminError):
    """The response is not the response of a Pulsar broker."""


class AdminTooLong(AdminMisunderstood):
    """The response exceeds the limit."""


_TOO_MANY: Final = 429
_FIRST_OF_SERVER: Final = 500
_BY_STATUS: Final[Mapping[int, type[AdminError]]] = {
    401: AdminUnauthorized,
    403: AdminForbidden,
    404: AdminNotFound,
    409: AdminConflict,
    412: AdminPrecondition,
}


def error_of_status(status: int, operation: str) -> AdminError:
    """Build the error for a response with an error status."""
    other = AdminBusy if status == _TOO_MANY or status >= _FIRST_OF_SERVER else AdminFailed
    return _BY_STATUS.get(status, other)(f"{operation}: status {status}")

"""What can go wrong between us and the admin API; no message repeats what the other side said.

```
AdminError
├── AdminUnreachable     no response, or none in time
├── AdminAddressRefused  the address is not one to talk to
├── AdminRedirected      a redirect that is not followed
├── AdminUnauthorized    401: the credentials are not accepted
├── AdminForbidden       403: they are, and do not suffice
├── AdminNotFound        404
├── AdminConflict        409: it exists already
│   └── AdminPrecondition  412: it is in use, or a topic is missing that cannot be created
├── AdminFailed          any other status
│   └── AdminBusy        429 or 5xx: not now
└── AdminMisunderstood   a response that makes no sense
    └── AdminTooLong     a response that exceeds the limit
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


class AdminError(Exception):
    """The admin API could not be asked, or said no."""


class AdminUnreachable(AdminError):
    """There was no response, or none in time."""


class AdminAddressRefused(AdminError):
    """The address is not one to talk to."""


class AdminRedirected(AdminError):
    """The broker names another host, which is not followed."""


class AdminUnauthorized(AdminError):
    """The credentials are not accepted."""


class AdminForbidden(AdminError):
    """The credentials are accepted and do not suffice."""


class AdminNotFound(AdminError):
    """What was asked for does not exist."""


class AdminConflict(AdminError):
    """It exists already, or is in use."""


class AdminPrecondition(AdminConflict):
    """The state of the topic does not allow it.

    A subscription has consumers, or its topic is missing and the broker does not create topics.
    """


class AdminFailed(AdminError):
    """The broker answered with an error."""


class AdminBusy(AdminFailed):
    """The broker cannot do it now, such as while a topic moves to another broker."""


class AdminMisunderstood(AdminError):
    """The response makes no sense: most likely no Pulsar broker."""


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
    """Build the error of a response that is no success."""
    other = AdminBusy if status == _TOO_MANY or status >= _FIRST_OF_SERVER else AdminFailed
    return _BY_STATUS.get(status, other)(f"{operation}: status {status}")

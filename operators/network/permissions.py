"""Why both controllers write policies; the generator derives the permissions."""

from typing import Final

WRITES: Final = ("create", "patch", "delete")
POLICIES: Final = "isolate instances, and allow what firewalls permit"
ATTACHED_POLICIES: Final = "do the same for interfaces that Multus attaches"

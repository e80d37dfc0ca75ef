"""Findings, and the facts that they are derived from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kubectl_slipway.discovery import Resource
from kubectl_slipway.model import Manifest
from kubectl_slipway.operators import Operator


@dataclass(frozen=True)
class Finding:
    """One cause, and its remedy.

    Attributes:
        code: Name of the cause: a reason of the API or of this plugin.
        subject: The object that the cause is about, as `Kind/name`.
        cause: What is wrong.
        remedy: How to fix it; empty if unknown.
        severity: Error, or Warning if the object can be ready nevertheless.
    """

    code: str
    subject: str
    cause: str
    remedy: str = ""
    severity: str = "Error"


@dataclass(frozen=True)
class Reference:
    """A reference of a spec to another object.

    Attributes:
        kind: Kind of the other object.
        facts: Facts about it; None if it does not exist.
    """

    field: str
    kind: str
    name: str
    facts: Facts | None


@dataclass(frozen=True)
class Facts:
    """The inputs of a diagnosis.

    Attributes:
        operator_id: Operator of the kind; empty for kinds that have none.
        operators: Installations of that operator; None if they cannot be read.
        namespace: Namespace of the object; None for cluster-scoped objects or if unreadable.
        denied: Permissions that the operator lacks, as `verbs resource`.
        events: Events about the object, the latest last.
        children: Objects that it owns.
        references: Objects that its spec names.
    """

    manifest: Manifest
    resource: Resource
    now: datetime
    operator_id: str = ""
    operators: Sequence[Operator] | None = None
    namespace: Manifest | None = None
    denied: Sequence[str] = ()
    events: Sequence[Manifest] = ()
    children: Sequence[Facts] = ()
    references: Sequence[Reference] = ()

"""Subject: how the conformance suite tries an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from libs.common.kinds import Kind, Manifest
from libs.common.rbac import PolicyRule
from libs.common.runtime.operator import Operator
from libs.common.testing.fakeapi import FakeApi

type Drive = Callable[[FakeApi], None]
"""Do what the rest of the cluster does, such as make pods run; safe to repeat."""


@dataclass(frozen=True)
class Subject:
    """The description of an operator under test.

    Attributes:
        operator: The operator.
        crds: CRDs of its kinds.
        objects: Builds what a user applies, in that order; the first is the primary.
        change: Merge patch that a user applies to the primary later.
        children: Kinds that the operator makes or changes.
        foreign: Those of the children that only others make: what vanishes stays away.
        outliving: Those of the children of which something stays when the objects of users are
            deleted, as data that is to be kept does.
        rules: Permissions of its service account, in addition to the permissions of the framework.
        initial_objects: Objects that are there before, such as storage classes; built for each run.
        drive: What the rest of the cluster does, called again and again.
        settings: Settings of the operator.
        alone: Whether runs share something, such as the server of an outside system, and so have to
            go one after the other.
        horizon: Seconds; a key that is to be looked at again sooner is waited for, as that of an
            operator is which asks something outside in the background. Give less than its polls
            take, or it never settles; 0 waits for none.
    """

    operator: Operator
    crds: Sequence[Mapping[str, Any]]
    objects: Callable[[], Sequence[Manifest]]
    change: Mapping[str, Any]
    children: Sequence[Kind]
    foreign: Sequence[Kind] = ()
    outliving: Sequence[Kind] = ()
    rules: Sequence[PolicyRule] = ()
    initial_objects: Callable[[], Sequence[Manifest]] = tuple
    drive: Drive = lambda _: None
    settings: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = False
    horizon: float = 0.0

    @property
    def primary(self) -> Kind:
        """Kind of the first object."""
        return self.operator.build_controllers(self.operator.settings(**self.settings))[0].primary

"""Subject: how the conformance suite tries an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from libs.common import fastyaml
from libs.common.kinds import Kind, Manifest
from libs.common.rbac import PolicyRule
from libs.common.runtime.operator import Operator
from libs.common.settings import CommonSettings
from libs.common.testing.fakeapi import FakeApi

type Drive = Callable[[FakeApi], None]
"""Do what the rest of the cluster does, such as make pods run; safe to repeat."""
type Build = Callable[[], Sequence[Manifest]]
"""Builds the objects that a user applies."""

NAMESPACE: Final = "default"
"""Namespace of the objects of a workload."""


@dataclass(frozen=True)
class Subject:
    """The description of an operator under test.

    Attributes:
        operator: The operator.
        crds: CRDs of its kinds.
        objects: Builds what a user applies, in that order; the first is the primary.
        change: Merge patch that a user applies to the primary later.
        children: Kinds that the operator makes or changes. Defaults to the kinds for which its
            controllers declare writes.
        foreign: The children that only others create: if one is deleted, it is not recreated.
        outliving: The children of which some remain when the objects of users are deleted, for
            example claims with data to retain.
        rules: Permissions of its service account, in addition to the permissions of the framework.
            Defaults to the permissions that are derived from its controllers.
        initial_objects: Objects that exist before, such as storage classes; built for each run.
        drive: What the rest of the cluster does, called repeatedly.
        settings: Settings of the operator.
        alone: Whether runs share something, such as the server of an outside system, so that they
            must run one after another.
        horizon: Seconds. The harness waits for keys that are requeued within this time, as an
            operator does that queries another system in the background. Set less than its poll
            interval, or the harness waits indefinitely; 0 waits for no such key.
    """

    operator: Operator
    crds: Sequence[Mapping[str, Any]]
    objects: Build
    change: Mapping[str, Any]
    children: Sequence[Kind] = ()
    foreign: Sequence[Kind] = ()
    outliving: Sequence[Kind] = ()
    rules: Sequence[PolicyRule] = ()
    initial_objects: Build = tuple
    drive: Drive = lambda _: None
    settings: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = False
    horizon: float = 0.0

    def __post_init__(self) -> None:
        """Read from the controllers what is not given."""
        settings = self.operator.settings(**self.settings)
        if not self.children:
            object.__setattr__(self, "children", self._list_written(settings))
        if not self.rules:
            object.__setattr__(self, "rules", self.operator.rules(settings))

    def _list_written(self, settings: CommonSettings) -> tuple[Kind, ...]:
        watches = (
            watch
            for controller in self.operator.build_controllers(settings)
            for watch in controller.watched
        )
        return tuple(dict.fromkeys(watch.kind for watch in watches if watch.writes))

    @property
    def primary(self) -> Kind:
        """Kind of the first object."""
        controllers = self.operator.build_controllers(self.operator.settings(**self.settings))
        first = self.objects()[0]
        return next(each.primary for each in controllers if each.primary.matches(first))


def load_example(file: str, name: str, namespace: str = NAMESPACE) -> Build:
    """Return a function that reads the objects of an example.

    Args:
        file: `__file__` of the test; the examples are in the folder `examples` next to it.
        name: Name of the example, without `.yaml`.
        namespace: Namespace of the objects; empty for cluster-scoped kinds.
    """
    path = Path(file).with_name("examples") / f"{name}.yaml"

    def build() -> list[Manifest]:
        objects = fastyaml.load_all(path.read_text(encoding="utf-8"))
        place = {"namespace": namespace} if namespace else {}
        return [{**each, "metadata": {**place, **each["metadata"]}} for each in objects if each]

    return build

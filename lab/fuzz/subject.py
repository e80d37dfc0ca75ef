"""Subject: what the fuzzer has to know of a kind, which is little. Pure.

An operator joins with one file in `lab/fuzz/subjects`: for each of its kinds the model, a valid
spec, and how the pure core makes children of an object. `build_subject` reads the last two from the
conformance suite of the operator and from its plan.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from lab.fuzz.fields import Field, put, walk_fields
from lab.fuzz.generators import Generator, generate
from libs.common.crd import CustomResource, build_crd, kind_of
from libs.common.kinds import Kind, Manifest, build_object
from libs.common.ownership import build_owner_reference
from libs.common.plan import Apply, Create, Step
from libs.common.testing.conformance import Subject
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.schema import Schema
from libs.common.testing.fakeapi.validation import apply_defaults, prune, validate

OPERATORS: Final = tuple(
    sorted(path.stem for path in Path(__file__).with_name("subjects").glob("[a-z]*.py"))
)
"""Operators that have subjects: each is a file of `subjects`."""
NAMESPACE: Final = "default"
UID: Final = "11111111-1111-4111-8111-111111111111"

type ExternalSystems = Callable[[FakeApi], AbstractContextManager[Mapping[str, Any]]]
"""Runs the external systems of an operator; yields the fields that name them."""
type Render = Callable[[Manifest], Sequence[Manifest]]
"""Make children of an object, as a first reconcile does; raises TerminalError for a bad spec."""

type Plan = Callable[[Any, Sequence[Manifest], Manifest], Sequence[Step]]
"""Plan the writes for an object: the object, its children, and their owner reference."""


def run_nothing(_: FakeApi) -> AbstractContextManager[Mapping[str, Any]]:
    """Run no external system."""
    return nullcontext({})


@dataclass(frozen=True, slots=True)
class Case:
    """One generated object.

    Attributes:
        field: What was changed.
        generator: Where the value is from.
        manifest: The object.
        value: The value.
    """

    field: Field
    generator: Generator
    manifest: Manifest
    value: Any

    def __str__(self) -> str:
        """Render for people: field, generator and value, shortened."""
        text = repr(self.value)
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        return f"{self.field.name} [{self.generator}] {shown}"


@dataclass(frozen=True)
class FuzzSubject:
    """The description of how a kind is fuzzed.

    Attributes:
        operator: Id of its operator.
        model: Model of the kind.
        spec: A valid spec, from which each case departs by a field.
        render: How the pure core makes children.
        passthrough: Fields whose content is given on as it is, so that children may be refused.
        pinned: Specs that once showed a bug, tried ever since.
        live: How its operator is run, for the state machine; None for a kind that is not.
        name: Name of the valid object.
        alternatives: Fields in place of which the valid spec has others: a value of one of their
            fields alone is never let in, for the rest of them is missing.
        ruled: Fields that rules in CEL bind to others. The fake API server does not know the rules,
            so the state machine leaves these fields as they are.
        run_external: Runs the external systems of the operator, for the state machine. Every
            generated object gets the fields of the spec that it yields.
    """

    operator: str
    model: type[CustomResource]
    spec: Mapping[str, Any]
    render: Render
    passthrough: tuple[str, ...] = ()
    pinned: tuple[Mapping[str, Any], ...] = ()
    live: Subject | None = None
    name: str = "data"
    alternatives: tuple[str, ...] = ()
    ruled: tuple[str, ...] = ()
    run_external: ExternalSystems = run_nothing

    @property
    def kind(self) -> Kind:
        """The kind."""
        return kind_of(self.model)

    @cached_property
    def crd(self) -> Manifest:
        """The CRD, as it is installed."""
        return build_crd(self.model)

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """Schema of the spec."""
        version = self.crd["spec"]["versions"][0]
        schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        return schema

    @cached_property
    def root(self) -> Mapping[str, Any]:
        """Schema of the whole object."""
        root: Mapping[str, Any] = self.crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return root

    @cached_property
    def _parsed(self) -> Schema:
        return Schema(self.root)

    def find_offenses(self, manifest: Manifest) -> list[str]:
        """List what the built-in API server refuses of the spec of an object, without CEL rules."""
        spec = {name: manifest[name] for name in ("spec",) if name in manifest}
        causes = validate(apply_defaults(prune(spec, self._parsed), self._parsed), self._parsed)
        return [f"{cause.field}: {cause.message}" for cause in causes]

    def build(self, name: str = "") -> Manifest:
        """Build the valid object, under its own name or another one."""
        metadata = {"uid": UID, "generation": 1}
        return build_object(
            self.kind, name or self.name, NAMESPACE, metadata=metadata, spec=dict(self.spec)
        )

    def cases(self) -> Iterator[Case]:
        """Yield each value of each field, put into the valid object one at a time."""
        base, schema = self.build(), self.schema
        for spec in self.pinned:
            whole = Field(("spec",), schema, required=True)
            yield Case(whole, Generator.PINNED, {**base, "spec": dict(spec)}, spec)
        for field in walk_fields(schema):
            for generator, value in generate(field):
                yield Case(field, generator, put(base, schema, field, value), value)


def build_subject(model: type[CustomResource], plan: Plan, live: Subject) -> FuzzSubject:
    """Describe how a kind is fuzzed whose children follow from its own object alone.

    Args:
        model: Model of the kind.
        plan: Plans the writes for an object, given its children and their owner reference.
        live: How its operator is run; its first object is the valid one.
    """

    def render(manifest: Manifest) -> list[Manifest]:
        steps = plan(model.parse(manifest), (), build_owner_reference(kind_of(model), manifest))
        return [step.manifest for step in steps if isinstance(step, Apply | Create)]

    return FuzzSubject(live.operator.id, model, live.objects()[0]["spec"], render, live=live)


def load_subjects() -> tuple[FuzzSubject, ...]:
    """Return the subjects of all operators."""
    modules = (importlib.import_module(f"lab.fuzz.subjects.{name}") for name in OPERATORS)
    return tuple(subject for module in modules for subject in module.SUBJECTS)

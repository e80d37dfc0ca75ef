"""Phases of a workload, from a folder of manifests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from lab.sweep.recorder import NamespaceRecord
from lab.sweep.workload import User
from libs.common.kinds import Kind, Manifest
from tools.cluster.errors import UsageError

type Action = Literal["apply", "patch", "status", "delete", "lose"]

_NUMBERED: Final = re.compile(r"\d+-")
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_TOUCH: Final = {"metadata": {"annotations": {"sweep.slipway.dev/touched": "yes"}}}
_IDENTITY: Final = ("apiVersion", "kind")


@dataclass(frozen=True, slots=True)
class Step:
    """One action of the user on some objects; `lose` deletes a child of each kind."""

    action: Action
    manifests: tuple[Manifest, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps that follow each other without a wait."""

    name: str
    steps: tuple[Step, ...]


class Kinds:
    """The kinds that the API server serves, by their names in manifests."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        """Index the kinds."""
        self.all = tuple(kinds)
        self._index = {(kind.group, kind.kind): kind for kind in self.all}

    def of(self, manifest: Manifest) -> Kind:
        """Return the kind of a manifest, in the version that it names.

        Raises:
            UsageError: The API server does not serve it.
        """
        api_version, name = str(manifest.get("apiVersion")), str(manifest.get("kind"))
        found = self._index.get((api_version.rpartition("/")[0], name))
        if found is None:
            raise UsageError(
                f"The API server does not know {name} in {api_version}; add its CRD to --crds"
            )
        return Kind.of(api_version, name, found.plural, namespaced=found.namespaced)


def read_manifests(place: Path) -> Iterator[Manifest]:
    """Read the objects in a file, or in all files of a folder, in the order of their names.

    Raises:
        UsageError: The place does not exist, or a file is no YAML.
    """
    if not place.exists():
        raise UsageError(f"{place} does not exist")
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    for file in files:
        if file.suffix not in _SUFFIXES or file.stem == "kustomization":
            continue
        try:
            documents = list(yaml.safe_load_all(file.read_text()))
        except yaml.YAMLError as err:
            raise UsageError(f"{file} is no YAML: {err}") from err
        for document in documents:
            if document:
                yield from document["items"] if document.get("kind") == "List" else [document]


def load_phases(place: Path) -> tuple[Phase, ...]:
    """Load the phases of a folder, or build the default phases from its samples.

    Raises:
        UsageError: The folder contains no object.
    """
    files = sorted(place.iterdir()) if place.is_dir() else []
    files = [file for file in files if _NUMBERED.match(file.name) and file.suffix in _SUFFIXES]
    if not files:
        samples = tuple(read_manifests(place))
        if not samples:
            raise UsageError(f"{place} contains no manifest")
        return _build_default(samples)
    steps: dict[str, list[Step]] = {}
    applied: list[Manifest] = []
    for file in files:
        step = _read_step(file)
        applied += step.manifests if step.action == "apply" else ()
        steps.setdefault(file.name.partition(".")[0], []).append(step)
    phases = [Phase(name, tuple(found)) for name, found in steps.items()]
    if not any(step.action == "delete" for phase in phases for step in phase.steps):
        phases.append(_build_deletion(applied))
    return tuple(phases)


def _read_step(file: Path) -> Step:
    actions: tuple[Action, ...] = ("patch", "status", "delete")
    middle = file.name.removesuffix(file.suffix).rpartition(".")[2]
    action: Action = next((each for each in actions if each == middle), "apply")
    return Step(action, tuple(read_manifests(file)))


def _build_default(samples: Sequence[Manifest]) -> tuple[Phase, ...]:
    """Build phases for samples: create, touch, lose a child of each kind, delete."""
    touched = tuple(
        {**{name: each[name] for name in _IDENTITY}, **_touch(each["metadata"]["name"])}
        for each in samples
    )
    return (
        Phase("create", (Step("apply", tuple(samples)),)),
        Phase("touch", (Step("patch", touched),)),
        Phase("lose", (Step("lose"),)),
        _build_deletion(samples),
    )


def _touch(name: str) -> Manifest:
    return {"metadata": {"name": name, **_TOUCH["metadata"]}}


def _build_deletion(applied: Sequence[Manifest]) -> Phase:
    return Phase("delete", (Step("delete", tuple(reversed(applied))),))


class Actor:
    """A user who carries out phases in the namespace of a trial.

    Args:
        user: The user, with all rights.
        kinds: Kinds that the API server serves.
        record: Existing objects.
    """

    def __init__(self, user: User, kinds: Kinds, record: NamespaceRecord) -> None:
        """Store the arguments."""
        self._user = user
        self._kinds = kinds
        self._record = record

    async def carry_out(self, phase: Phase) -> None:
        """Carry out the steps of a phase."""
        for step in phase.steps:
            if step.action == "lose":
                await self._lose_children()
            for manifest in step.manifests:
                await self._act(step.action, self._kinds.of(manifest), manifest)

    async def _act(self, action: Action, kind: Kind, manifest: Manifest) -> None:
        name = str(manifest["metadata"]["name"])
        if not kind.namespaced:
            raise UsageError(f"{kind} {name} is in no namespace: move it to --manifests")
        changes = {key: value for key, value in manifest.items() if key not in _IDENTITY}
        changes["metadata"] = _leave_out(manifest["metadata"], "name", "namespace")
        match action:
            case "apply" if name not in self._find(kind, name):
                await self._user.add(kind, _leave_out(manifest, *_IDENTITY))
            case "status":
                for each in self._find(kind, name):
                    status = {"status": manifest.get("status")}
                    await self._user.patch(kind, each, status, subresource="status")
            case "delete":
                for each in self._find(kind, name):
                    await self._user.delete(kind, each)
            case _:
                for each in self._find(kind, name):
                    await self._user.patch(kind, each, changes)

    def _find(self, kind: Kind, pattern: str) -> list[str]:
        """Return the names of the existing objects that match a pattern such as `web-*`."""
        names = [str(each["metadata"]["name"]) for each in self._record.list(kind)]
        return [name for name in names if fnmatchcase(name, pattern)]

    async def _lose_children(self) -> None:
        for kind in self._kinds.all:
            for manifest in self._record.list(kind):
                owners = manifest["metadata"].get("ownerReferences") or ()
                if any(owner.get("controller") for owner in owners):
                    await self._user.delete(kind, manifest["metadata"]["name"])
                    break


def _leave_out(manifest: Manifest, *names: str) -> dict[str, Any]:
    return {name: value for name, value in manifest.items() if name not in names}

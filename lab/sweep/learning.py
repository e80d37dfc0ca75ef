"""What is learned from undisturbed runs: names with random parts, and fields that vary. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any, Final

from lab.sweep.normalize import mask, normalize
from lab.sweep.outcome import Outcome
from lab.sweep.recorder import NamespaceRecord
from lab.sweep.triggers import Trigger
from lab.sweep.workload import State
from libs.common.kinds import Kind, Manifest
from libs.common.testing import differences
from libs.common.testing.differences import ABSENT

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?")
_SEPARATOR: Final = re.compile(r"([-.])")
_RANDOM: Final = re.compile(r"[a-z0-9]{4,}")
_NAMESPACE: Final = "<namespace>"
_NUMBER: Final = re.compile(r"\[\d+\]| #\d+")


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two states.

    Attributes:
        place: Object and field, such as `pods web-0.spec.nodeName`.
        wanted: Value in the undisturbed run.
        found: Value in this run.
    """

    place: str
    wanted: Any
    found: Any

    @property
    def is_about_progress(self) -> bool:
        """Whether it is in an annotation, where frameworks store their progress."""
        return ".metadata.annotations." in self.place

    @property
    def is_about_object(self) -> bool:
        """Whether a whole object is missing, or is there without need."""
        return any(map(_is_object, (self.wanted, self.found)))

    def __str__(self) -> str:
        """Render as `place: wanted -> found`."""
        return f"{self.place}: {_short(self.wanted)} -> {_short(self.found)}"


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What differs between runs without any fault.

    Attributes:
        names: Pattern of each name with a random part, and its replacement.
        varying: Places that differ, with two of their values.
        ignored: Patterns of places that the user wants to ignore.
    """

    names: tuple[tuple[re.Pattern[str], str], ...] = ()
    varying: Mapping[str, Difference] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def blur(self, text: str) -> str:
        """Replace the random parts of names."""
        for pattern, replacement in self.names:
            text = pattern.sub(replacement, text)
        return text

    def build_state(self, record: NamespaceRecord, kinds: Iterable[Kind], namespace: str) -> State:
        """Return the comparable objects; objects with the same blurred name are numbered."""
        found: dict[str, list[Manifest]] = {}
        for kind in kinds:
            for manifest in record.list(kind):
                title = f"{kind.plural} {manifest['metadata']['name']}"
                title = self.blur(title.replace(namespace, _NAMESPACE))
                normal = self._soften(normalize(manifest, record.names, namespace))
                found.setdefault(title, []).append(normal)
        return {
            f"{title}{f' #{number}' if number else ''}": each
            for title, alike in found.items()
            for number, each in enumerate(sorted(alike, key=_render))
        }

    def compare(self, wanted: State, found: State) -> list[Difference]:
        """Return the differences that undisturbed runs do not have."""
        found_differences = find_differences(wanted, found)
        return [each for each in found_differences if not self.varies(each.place)]

    def varies(self, place: str) -> bool:
        """Return whether a field, or one that contains it, varies."""
        is_known = any(f"{place}.".startswith(f"{known}.") for known in self.varying)
        return is_known or any(fnmatchcase(place, pattern) for pattern in self.ignored)

    def with_varying(self, place: str) -> Knowledge:
        """Return the knowledge that another field varies."""
        return replace(self, varying={**self.varying, place: Difference(place, None, None)})

    def count(self, titles: Iterable[str], namespace: str) -> Counter[str]:
        """Count objects by their blurred names."""
        return Counter(self.blur(title.replace(namespace, _NAMESPACE)) for title in titles)

    def rename(self, moments: Sequence[Trigger]) -> list[Trigger]:
        """Return moments with blurred names, counted again."""
        seen: Counter[Trigger] = Counter()
        renamed = []
        for moment in moments:
            base = replace(moment, name=self.blur(moment.name), occurrence=0)
            seen[base] += 1
            renamed.append(replace(base, occurrence=seen[base]))
        return renamed

    def _soften(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.blur(name): self._soften(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._soften(item) for item in value]
        if not isinstance(value, str):
            return value
        if value[:1] in ("{", "["):  # JSON in an annotation.
            try:
                return self._soften(mask(json.loads(value)))
            except ValueError:
                pass
        return _TIME.sub("<time>", self.blur(value))


def learn_names(runs: Sequence[Outcome]) -> Knowledge:
    """Learn which parts of names are random, from the objects that ever existed in some runs."""
    titles = [
        {each.title.replace(run.namespace, _NAMESPACE) for each in run.history} for run in runs
    ]
    templates: set[tuple[str, str]] = set()
    for first, second in combinations(titles, 2):
        for title in first - second:
            templates |= set(_match(title, second - first))
    # Longer ones first: a name may begin with the name of its owner.
    ordered = sorted(templates, key=lambda each: (-len(each[1]), each))
    return Knowledge(
        tuple((re.compile(rf"(?<![a-z0-9]){body}(?![a-z0-9])"), name) for body, name in ordered)
    )


def learn_places(knowledge: Knowledge, states: Sequence[Mapping[str, State]]) -> Knowledge:
    """Learn which fields vary, from the states of the phases of undisturbed runs."""
    varying = dict(knowledge.varying)
    for first, second in combinations(states, 2):
        for phase in first.keys() & second.keys():
            for each in knowledge.compare(first[phase], second[phase]):
                varying.setdefault(each.place, each)
    return replace(knowledge, varying=varying)


def find_differences(wanted: Any, found: Any) -> Iterator[Difference]:
    """Find the fields in which two states differ; all items of a list are one field."""
    for place, *values in differences.find_differences(wanted, found):
        yield Difference(_NUMBER.sub("", place), *values)


def _match(title: str, others: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield pattern and blurred form of a name, from the most similar name of another run."""
    plural, _, name = title.partition(" ")
    parts = _SEPARATOR.split(name)
    best: list[tuple[str, str]] = []
    least = len(parts) // 2 + 1  # At least one word must be equal.
    for other in others:
        other_plural, _, other_name = other.partition(" ")
        other_parts = _SEPARATOR.split(other_name)
        if other_plural != plural or len(other_parts) != len(parts):
            continue
        pairs = list(zip(parts, other_parts, strict=True))
        changed = [part for pair in pairs if pair[0] != pair[1] for part in pair]
        if len(changed) // 2 < least and all(map(_RANDOM.fullmatch, changed)):
            least, best = len(changed) // 2, pairs
    if best:
        yield (
            "".join(re.escape(a) if a == b else _build_pattern(a, b) for a, b in best),
            "".join(a if a == b else "*" for a, b in best),
        )


def _build_pattern(first: str, second: str) -> str:
    lengths = sorted((len(first), len(second)))
    return f"[a-z0-9]{{{lengths[0]},{lengths[1]}}}"


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and {"apiVersion", "metadata"} <= value.keys()


def _render(manifest: Manifest) -> str:
    return json.dumps(manifest, sort_keys=True)


def _short(value: Any) -> str:
    if _is_object(value):
        return "(an object)"
    text = json.dumps(value) if value != ABSENT else ABSENT
    return text if len(text) <= 160 else f"{text[:157]}..."

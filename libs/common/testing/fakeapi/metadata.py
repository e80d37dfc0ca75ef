"""Rules for metadata: names, labels, annotations, owner references, finalizers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.registry import Resource
from libs.common.testing.fakeapi.statuses import Cause

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_NAMED: Final = frozenset({"namespaces", "services"})
_PATH_NAMED: Final = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})
_SUBDOMAIN_LIMIT: Final = 253
_LABEL_LIMIT: Final = 63
_SUBDOMAIN_RULE: Final = (
    "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'example.com', regex used for validation is '{_SUBDOMAIN.pattern}')"
)
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_ANNOTATIONS_LIMIT: Final = 256 * 1024


def check_metadata(resource: Resource, metadata: Manifest) -> list[Cause]:
    """Return what is wrong with the metadata of an object."""
    causes: list[Cause] = []
    name = metadata.get("name", "")
    if not name:
        why = "Required value: name or generateName is required"
        causes.append(Cause("metadata.name", why, "FieldValueRequired"))
    elif resource.plural not in _PATH_NAMED:
        causes.extend(_check_name(resource, name))
    causes.extend(_check_labels(metadata.get("labels") or {}))
    causes.extend(_check_annotations(metadata.get("annotations") or {}))
    causes.extend(_check_owners(metadata.get("ownerReferences") or ()))
    causes.extend(
        Cause(
            f"metadata.finalizers[{index}]",
            f"Invalid value: {_quote(finalizer)}: name is neither a standard finalizer name nor is "
            "it fully qualified",
        )
        for index, finalizer in enumerate(metadata.get("finalizers") or ())
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    )
    return causes


_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def _check_name(resource: Resource, name: str) -> list[Cause]:
    label = resource.plural in _LABEL_NAMED
    pattern, limit = (_LABEL, _LABEL_LIMIT) if label else (_SUBDOMAIN, _SUBDOMAIN_LIMIT)
    what = "a lowercase RFC 1123 label" if label else "a lowercase RFC 1123 subdomain"
    causes = []
    if len(name) > limit:
        unit = "bytes" if label else "characters"
        why = f"Invalid value: {_quote(name)}: must be no more than {limit} {unit}"
        causes.append(Cause("metadata.name", why))
    if label and "." in name:
        causes.append(
            Cause("metadata.name", f"Invalid value: {_quote(name)}: must not contain dots")
        )
    elif not pattern.fullmatch(name):
        allowed = " or '-'" if label else ", '-' or '.'"
        example = "'my-name',  or '123-abc'" if label else "'example.com'"
        why = (
            f"{what} must consist of lower case alphanumeric characters{allowed}, and must start "
            f"and end with an alphanumeric character (e.g. {example}, regex used for validation is "
            f"'{pattern.pattern}')"
        )
        causes.append(Cause("metadata.name", f"Invalid value: {_quote(name)}: {why}"))
    return causes


def _check_labels(labels: Mapping[str, str]) -> Iterator[Cause]:
    for key, value in labels.items():
        yield from _check_key("metadata.labels", key)
        if len(value) > _LABEL_LIMIT:
            yield _refuse("metadata.labels", value, f"must be no more than {_LABEL_LIMIT} bytes")
        if not _LABEL_VALUE.fullmatch(value):
            why = (
                "a valid label must be an empty string or consist of alphanumeric characters, "
                "'-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
                "'MyValue',  or 'my_value',  or '12345', regex used for validation is "
                f"'{_LABEL_VALUE.pattern}')"
            )
            yield _refuse("metadata.labels", value, why)


def _check_annotations(annotations: Mapping[str, str]) -> Iterator[Cause]:
    for key in annotations:
        # Keys of annotations may have capitals in their prefix.
        yield from _check_key("metadata.annotations", key.lower(), shown=key)
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        why = f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        yield Cause("metadata.annotations", why, "FieldValueTooLong")


def _check_key(where: str, key: str, *, shown: str = "") -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        what = "prefix part a lowercase RFC 1123 subdomain must consist of lower case"
        yield _refuse(where, shown or key, f"{what} {_SUBDOMAIN_RULE}")
    if len(name) > _LABEL_LIMIT:
        yield _refuse(where, shown or key, f"name part must be no more than {_LABEL_LIMIT} bytes")
    if not _QUALIFIED.fullmatch(name):
        why = (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
            f"regex used for validation is '{_QUALIFIED.pattern}')"
        )
        yield _refuse(where, shown or key, why)


def _check_owners(owners: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    where = "metadata.ownerReferences"
    for owner in owners:
        for part in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(part):
                what = {"apiVersion": "version must not be empty", "kind": "must not be empty"}
                yield _refuse(f"{where}.{part}", "", what.get(part, "must not be empty"))
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        first, second = (f"{o.get('kind')}/{o.get('name')}" for o in controllers[:2])
        why = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{first} and {second}"
        )
        yield Cause(where, f"Invalid value: {orjson.dumps(list(owners)).decode()}: {why}")


def _refuse(where: str, value: str, why: str) -> Cause:
    return Cause(where, f"Invalid value: {_quote(value)}: {why}")


def _quote(text: str) -> str:
    return orjson.dumps(text).decode()

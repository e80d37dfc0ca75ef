"""Conversion between the versions of a kind. Pure.

One version is the hub: every other version (a spoke) has a function to the hub and one back, as in
controller-runtime. The functions only handle fields that differ:

```python
def to_hub(widget: Manifest) -> Manifest:
    widget["spec"]["replicas"] = widget["spec"].pop("count", 1)
    return widget

CONVERSION = Conversion(Widget, (Spoke(WidgetV1alpha1, to_hub, from_hub),))
```

No conversion loses data. Fields that the target version does not have, or for which converting back
returns another value, are recorded in an annotation and restored on the way back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from libs.common.crd.build import check_versions
from libs.common.crd.definition import CustomResource
from libs.common.crd.differences import Difference, apply_differences, find_differences
from libs.common.crd.errors import ParseError
from libs.common.crd.normal_form import normalize
from libs.common.errors import SlipwayError
from libs.common.kinds import Kind, Manifest
from libs.common.labels import CONVERSION_DATA

type Convert = Callable[[Manifest], Manifest]
"""Converts an object to another version.

The function receives a copy that it can change and return. It handles `spec` and `status`;
`apiVersion` is set afterwards. Of the metadata it can change labels and annotations only. Fields
that are required can be missing, because a stored object can be older than a rule.
"""

_HEAD: Final = ("apiVersion", "kind", "metadata")
_MUTABLE: Final = ("labels", "annotations")


class ConversionError(SlipwayError):
    """An object cannot be converted; conversion functions raise it for values without counterpart.

    Attributes:
        field: Path of the field, such as `spec.size`; empty if unknown.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        """Initialize with the cause, without the name of the object."""
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Spoke:
    """A version of a kind other than its hub.

    Attributes:
        model: Model of the version.
        to_hub: Converts an object of this version to the hub.
        from_hub: Converts an object of the hub to this version.
    """

    model: type[CustomResource]
    to_hub: Convert
    from_hub: Convert


@dataclass(frozen=True, slots=True)
class Conversion:
    """The versions of a kind and the conversions between them.

    Attributes:
        hub: Model of the version to and from which all others are converted, usually the newest. It
            becomes the storage version one release after its introduction.
        spokes: All other versions.
    """

    hub: type[CustomResource]
    spokes: Sequence[Spoke]

    def __post_init__(self) -> None:
        """Check that the models are versions of one kind."""
        check_versions(self.models)

    @property
    def models(self) -> tuple[type[CustomResource], ...]:
        """Models of all versions, for `build_crd`."""
        return (self.hub, *(spoke.model for spoke in self.spokes))

    @property
    def kind(self) -> Kind:
        """Kind of the hub."""
        return self.hub.crd_meta.kind

    @property
    def path(self) -> str:
        """Path under which the operator serves the conversion."""
        return f"/convert/{self.kind.resource}"

    def to_chart(self) -> Manifest:
        """Return its entry in `files/webhooks.yaml` of a chart."""
        kind = self.kind
        return {
            "name": kind.resource,
            "path": self.path,
            "group": kind.group,
            "plural": kind.plural,
        }

    def convert(self, manifest: Manifest, api_version: str) -> Manifest:
        """Convert an object to a version, through the hub.

        Args:
            manifest: Object of any version of the kind; it is not changed.
            api_version: Group and version of the result.

        Raises:
            ConversionError: The object cannot be converted. The message names the object and the
                field: `Widget default/web: spec.size: ...`.
        """
        try:
            return self._convert(manifest, api_version)
        except ConversionError as error:
            field = f"{error.field}: " if error.field else ""
            raise ConversionError(
                f"{_describe(manifest)}: {field}{error}", field=error.field
            ) from error
        except Exception as error:
            # A bug in a conversion function, or an object of an unexpected form. The API server
            # must learn which object it is.
            cause = f"cannot convert to {api_version}: {type(error).__name__}: {error}"
            raise ConversionError(f"{_describe(manifest)}: {cause}") from error

    def _convert(self, manifest: Manifest, api_version: str) -> Manifest:
        if not isinstance(manifest, dict):
            raise ConversionError("not an object")
        if manifest.get("kind") != self.kind.kind:
            raise ConversionError(f"must be {self.kind.kind}", field="kind")
        source = self._find(str(manifest.get("apiVersion")), "apiVersion")
        target = self._find(api_version, "desiredAPIVersion")
        if source is target:
            return manifest
        if source is not None:
            manifest = _convert_step(
                manifest, (source.model, self.hub), source.to_hub, source.from_hub
            )
        if target is not None:
            manifest = _convert_step(
                manifest, (self.hub, target.model), target.from_hub, target.to_hub
            )
        return manifest

    def _find(self, api_version: str, field: str) -> Spoke | None:
        """Return the spoke of a version, or None for the hub."""
        if api_version == self.kind.api_version:
            return None
        for spoke in self.spokes:
            if spoke.model.crd_meta.kind.api_version == api_version:
                return spoke
        known = ", ".join(model.crd_meta.kind.api_version for model in self.models)
        raise ConversionError(f"{api_version} is unknown; the versions are {known}", field=field)


def _convert_step(
    manifest: Manifest,
    models: tuple[type[CustomResource], type[CustomResource]],
    forward: Convert,
    backward: Convert,
) -> Manifest:
    """Convert between the hub and a spoke, in either direction, without loss."""
    source, target = models
    original = normalize(source, manifest)
    recorded = _take_recorded(original)
    plain = _call(forward, original, target)
    converted = _restore(plain, recorded.pop(target.crd_meta.kind.version, ()), target)
    returned = _call(backward, converted, source)
    recorded.pop(source.crd_meta.kind.version, None)
    lost = list(find_differences(_body(returned), _body(original)))
    if lost:
        recorded[source.crd_meta.kind.version] = lost
    _put_recorded(converted, recorded)
    return converted


def _call(function: Convert, manifest: Manifest, target: type[CustomResource]) -> Manifest:
    """Call a conversion function, and return what the API server will make of its result."""
    given = json.loads(json.dumps(manifest))  # security: accepted by the API server
    result = {"metadata": given["metadata"], **function(given)}
    metadata, before = result["metadata"], manifest["metadata"]
    for name in sorted({*metadata, *before} - {*_MUTABLE}):
        if metadata.get(name) != before.get(name):
            raise ConversionError("a conversion must not change it", field=f"metadata.{name}")
    kind = target.crd_meta.kind
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    return normalize(target, {**result, **head})


def _restore(
    plain: Manifest, recorded: Iterable[Difference], target: type[CustomResource]
) -> Manifest:
    """Restore what an earlier conversion has recorded.

    Anyone who can write the object can write the annotation, and the API server does not validate
    converted objects. A record that makes a valid object invalid is therefore ignored.
    """
    recorded = [each for each in recorded if each.path[0] not in _HEAD]
    if not recorded:
        return plain
    restored = normalize(target, apply_differences(plain, recorded))
    return plain if _is_valid(target, plain) and not _is_valid(target, restored) else restored


def _is_valid(model: type[CustomResource], manifest: Manifest) -> bool:
    try:
        model.parse(manifest)
    except ParseError:
        return False
    return True


def _body(manifest: Mapping[str, Any]) -> Manifest:
    return {name: value for name, value in manifest.items() if name not in _HEAD}


def _take_recorded(manifest: Manifest) -> dict[str, Sequence[Difference]]:
    """Remove the annotation from an object, and return the differences by version."""
    annotations = manifest["metadata"].get("annotations") or {}
    text = annotations.pop(CONVERSION_DATA, "")
    if not annotations:
        manifest["metadata"].pop("annotations", None)
    try:
        found = orjson.loads(text) if text else {}
        return {
            version: [Difference.from_json(each) for each in differences]
            for version, differences in found.items()
        }
    except (ValueError, TypeError, AttributeError):
        # Somebody has edited it. The object is worth more than the fields that are lost.
        return {}


def _put_recorded(manifest: Manifest, recorded: Mapping[str, Sequence[Difference]]) -> None:
    if not recorded:
        return
    values = {
        version: [each.to_json() for each in differences]
        for version, differences in recorded.items()
    }
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    annotations = manifest["metadata"].get("annotations") or {}
    manifest["metadata"]["annotations"] = {**annotations, CONVERSION_DATA: text}


def _describe(manifest: object) -> str:
    # What was sent can have any form.
    manifest = manifest if isinstance(manifest, dict) else {}
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    place = "/".join(str(metadata[name]) for name in ("namespace", "name") if metadata.get(name))
    return f"{manifest.get('kind')} {place}".rstrip()

"""CRDs of the kinds that the simulator stands in for.

The schemas name what operators here use, and keep everything else as it is. The real ones are
longer; their rules that matter are here as CEL, or in `admission`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lab.kubevirt_sim.storage import STORAGE_PROFILE
from libs.common.kinds import CRD, Kind, Manifest, build_object
from libs.contracts.cdi import DATA_SOURCE, DATA_VOLUME
from libs.contracts.instancetypes import (
    CLUSTER_INSTANCETYPE,
    CLUSTER_PREFERENCE,
    INSTANCETYPE,
    MATCHED_KINDS,
    PREFERENCE,
)
from libs.contracts.kubevirt import (
    KUBEVIRT,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT, MACHINE_SNAPSHOT_CONTENT

_ANY: Final[Mapping[str, Any]] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
}
_TEXT: Final[Mapping[str, Any]] = {"type": "string"}
_TEXTS: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": _TEXT}
SIMULATED: Final = "sim.slipway.dev/simulated"
"""Annotation on the CRDs, by which the simulator knows its own."""

PART_OF: Final = "app.kubernetes.io/part-of=kubevirt-sim"
"""Label of the CRDs, as a selector."""


def _object(**properties: Mapping[str, Any]) -> Manifest:
    return {**_ANY, "properties": dict(properties)}


def _list(item: Mapping[str, Any]) -> Manifest:
    return {"type": "array", "items": dict(item)}


def _rule(schema: Mapping[str, Any], rule: str, message: str) -> Manifest:
    rules = [*schema.get("x-kubernetes-validations", ()), {"rule": rule, "message": message}]
    return {**schema, "x-kubernetes-validations": rules}


_VOLUME: Final = _object(
    name=_TEXT,
    dataVolume=_object(name=_TEXT),
    persistentVolumeClaim=_object(claimName=_TEXT),
)
_INSTANCE_SPEC: Final = _object(
    domain=_object(
        cpu=_object(cores={"type": "integer"}, sockets={"type": "integer"}),
        firmware=_object(uuid=_TEXT),
    ),
    evictionStrategy={
        "type": "string",
        "enum": ["None", "LiveMigrate", "LiveMigrateIfPossible", "External"],
    },
    terminationGracePeriodSeconds={"type": "integer", "format": "int64"},
    nodeSelector=_TEXTS,
    networks=_list(_ANY),
    volumes=_list(_VOLUME),
)
_MACHINE_SPEC: Final = _rule(
    {
        **_object(
            running={"type": "boolean"},
            runStrategy={
                "type": "string",
                "enum": [
                    "Always",
                    "Halted",
                    "Manual",
                    "RerunOnFailure",
                    "Once",
                    "WaitAsReceiver",
                ],
            },
            template={**_object(metadata=_ANY, spec=_INSTANCE_SPEC), "required": ["spec"]},
            dataVolumeTemplates=_list(_ANY),
        ),
        "required": ["template"],
    },
    "has(self.running) != has(self.runStrategy)",
    "Running and RunStrategy are mutually exclusive, and one of them must be set",
)
_MIGRATION_SPEC: Final = _rule(
    _object(vmiName=_TEXT, addedNodeSelector=_TEXTS),
    "self == oldSelf",
    "update of Migration object's spec is restricted",
)
_SNAPSHOT_SPEC: Final = _rule(
    {
        **_object(
            source=_object(apiGroup=_TEXT, kind=_TEXT, name=_TEXT),
            deletionPolicy={"type": "string", "enum": ["Delete", "Retain"]},
        ),
        "required": ["source"],
    },
    "self == oldSelf",
    "spec in immutable after creation",
)
_DISK_SPEC: Final = _rule(
    _object(
        source=_ANY,
        sourceRef=_ANY,
        storage=_object(
            accessModes=_list(_TEXT), storageClassName=_TEXT, volumeMode=_TEXT, resources=_ANY
        ),
        pvc=_object(
            accessModes=_list(_TEXT), storageClassName=_TEXT, volumeMode=_TEXT, resources=_ANY
        ),
    ),
    "self == oldSelf",
    "Cannot update DataVolume Spec",
)


_SHORT: Final = {
    CLUSTER_INSTANCETYPE: ("vmclusterinstancetype", "vmcf"),
    INSTANCETYPE: ("vminstancetype", "vmf"),
    CLUSTER_PREFERENCE: ("vmcp",),
    PREFERENCE: ("vmpref", "vmp"),
}
"""Short names of instancetypes and preferences."""


def build_crds() -> list[Manifest]:
    """Build all CRDs of the simulator."""
    return [
        _build(
            VIRTUAL_MACHINE,
            _MACHINE_SPEC,
            ("vm", "vms"),
            [
                ("Status", ".status.printableStatus"),
                ("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            ],
        ),
        _build(
            VIRTUAL_MACHINE_INSTANCE,
            _INSTANCE_SPEC,
            ("vmi", "vmis"),
            [
                ("Phase", ".status.phase"),
                ("IP", ".status.interfaces[0].ipAddress"),
                ("NodeName", ".status.nodeName"),
                ("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            ],
            # The real kind has none either: its status is written with the rest.
            subresources=(),
        ),
        _build(
            VIRTUAL_MACHINE_INSTANCE_MIGRATION,
            _MIGRATION_SPEC,
            ("vmim", "vmims"),
            [("Phase", ".status.phase"), ("VMI", ".spec.vmiName")],
        ),
        _build(
            MACHINE_SNAPSHOT,
            _SNAPSHOT_SPEC,
            ("vmsnapshot", "vmsnapshots"),
            [("Phase", ".status.phase"), ("ReadyToUse", ".status.readyToUse")],
        ),
        _build(
            MACHINE_SNAPSHOT_CONTENT,
            _ANY,
            ("vmsnapshotcontent", "vmsnapshotcontents"),
            [("ReadyToUse", ".status.readyToUse")],
        ),
        _build(KUBEVIRT, _ANY, ("kv", "kvs"), [("Phase", ".status.phase")]),
        _build(
            DATA_VOLUME,
            _DISK_SPEC,
            ("dv", "dvs"),
            [("Phase", ".status.phase"), ("Progress", ".status.progress")],
        ),
        _build(DATA_SOURCE, _ANY, ("das",), []),
        *(_build(kind, _ANY, _SHORT[kind], [], subresources=()) for kind in MATCHED_KINDS.values()),
        _build(STORAGE_PROFILE, _ANY, (), []),
    ]


def _build(
    kind: Kind,
    spec: Mapping[str, Any],
    short: Sequence[str],
    columns: Sequence[tuple[str, str]],
    *,
    subresources: Sequence[str] = ("status",),
) -> Manifest:
    printed = [{"name": name, "type": "string", "jsonPath": path} for name, path in columns]
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    return build_object(
        CRD,
        kind.resource,
        metadata={"annotations": {SIMULATED: "true"}, "labels": dict([PART_OF.split("=")])},
        spec={
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": list(short),
            },
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "apiVersion": _TEXT,
                                "kind": _TEXT,
                                "metadata": {"type": "object"},
                                "spec": dict(spec),
                                "status": dict(_ANY),
                            },
                        }
                    },
                    "subresources": {name: {} for name in subresources},
                    "additionalPrinterColumns": [*printed, age],
                }
            ],
        },
    )

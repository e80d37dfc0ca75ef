"""The record of a machine in an annotation of its Instance, which backups keep. Pure.

Backup tools and GitOps recreate an Instance without its status and with another UID. The record
contains what must not change then: the seed of the MAC address and firmware UUID, and the root
disk. The root disks have it as well, for a later Instance that boots from a kept disk.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from libs.common.actions import Action
from libs.common.kinds import Key, Manifest, key_of
from libs.common.naming import short_hash
from libs.common.plan import Patch, annotate
from libs.common.reading import text_at
from operators.compute.api.directives import DirectiveKind
from operators.compute.api.instance import INSTANCE, Instance
from operators.compute.api.reasons import Reason
from operators.compute.naming import RECORD


@dataclass(frozen=True, slots=True)
class Record:
    """What must survive a restore.

    Attributes:
        seed: Text from which the MAC address and the firmware UUID are derived.
        disk: Root disk of the machine; empty before it has one.
    """

    seed: str
    disk: str = ""


def read_record(instance: Instance) -> Record:
    """Read the record; the UID is the seed of an Instance that has none."""
    metadata = instance.metadata
    held = _read(metadata.annotations.get(RECORD, ""), metadata.key)
    return Record(text_at(held, "seed")[:64] or metadata.uid, text_at(held, "disk"))


def read_recorded_disk(instance: Manifest) -> str:
    """Return the root disk in the record of an Instance; empty for none."""
    return text_at(
        _read(text_at(instance, "metadata", "annotations", RECORD), key_of(instance)), "disk"
    )


def inherit_record(instance: Instance, disk: Manifest) -> Instance:
    """Return an Instance without a record with the record of its disk.

    An earlier Instance with its name has left the disk, whose guest knows the MAC address and the
    firmware UUID.
    """
    metadata = instance.metadata
    text = text_at(disk, "metadata", "annotations", RECORD)
    if _read(metadata.annotations.get(RECORD, ""), metadata.key) or not _read(text, metadata.key):
        return instance
    annotations = {**metadata.annotations, RECORD: text}
    return instance.model_copy(
        update={"metadata": metadata.model_copy(update={"annotations": annotations})}
    )


def render_record(instance: Instance, disk: str = "") -> str:
    """Render the record of an Instance, or of its disk."""
    record = {"instance": str(instance.metadata.key), "seed": read_record(instance).seed}
    return orjson.dumps(
        record | ({"disk": disk} if disk else {"ssh": _hash_keys(instance)})
    ).decode()


def has_other_keys(instance: Instance, disk: Manifest) -> bool:
    """Return whether spec.ssh has changed since a disk was created: its guest reads it once."""
    text = text_at(disk, "metadata", "annotations", RECORD)
    return text_at(_read(text, instance.metadata.key), "ssh") not in ("", _hash_keys(instance))


def _hash_keys(instance: Instance) -> str:
    ssh = instance.spec.ssh
    return short_hash("" if ssh is None else f"{ssh.user} {ssh.authorized_keys}")


def _read(text: str, key: Key) -> Manifest:
    try:
        held = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    # Whoever copies a manifest to create another Instance copies its annotations as well. Two
    # machines must not share a MAC address, so the record names its Instance.
    return held if isinstance(held, dict) and text_at(held, "instance") == str(key) else {}


def plan_record(instance: Instance, disk: str) -> list[Action]:
    """Update the record of an Instance whose machine boots from a disk."""
    record, metadata = read_record(instance), instance.metadata
    if record.disk == disk or instance.spec.directive(DirectiveKind.ROOT_DISK) is not None:
        # While a directive exists, the machine may return to its earlier disk.
        return []
    text = render_record(instance, disk)
    # A record that only the disk has is not in the annotations of the Instance itself.
    change = annotate(metadata.annotations.keys() - {RECORD}, RECORD, text)
    # The version guards annotations that others add meanwhile.
    version = metadata.resource_version
    step = Patch(INSTANCE, metadata.key, metadata.uid, [change], resource_version=version)
    return [Action(step, Reason.WRITE_FAILED)]

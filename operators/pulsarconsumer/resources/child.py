"""The common metadata of all children of a PulsarConsumer: name, labels, owner reference."""

from __future__ import annotations

from libs.common.kinds import Kind, Manifest, build_object
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.naming import selector_labels


def build_child(kind: Kind, consumer: PulsarConsumer, owner: Manifest, spec: Manifest) -> Manifest:
    """Build an object with the name of its PulsarConsumer."""
    return build_object(
        kind,
        consumer.metadata.name,
        consumer.metadata.namespace,
        metadata={"labels": selector_labels(consumer.metadata.name), "ownerReferences": [owner]},
        spec=spec,
    )

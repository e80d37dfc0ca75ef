from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from libs.common.crd import ParseError, build_crd, lint_crd
from libs.common.kinds import Manifest
from operators.podset.api import RESOURCES, PodSet
from operators.podset.api.v1 import PodReplacementPolicy, UpdateType

SAMPLE = Path(__file__).parents[1] / "examples" / "podset-sample.yaml"


def build_manifest(**spec: object) -> Manifest:
    """Build a set of one's own."""
    return {
        "apiVersion": "batch.tutorial.kubebuilder.io/v1",
        "kind": "PodSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": spec,
    }


@pytest.mark.parametrize("model", RESOURCES)
def test_api_keeps_to_the_conventions(model: type[PodSet]) -> None:
    assert lint_crd(model) == []


def test_manifest_of_the_predecessor_means_what_it_meant() -> None:
    podset = PodSet.parse(yaml.safe_load(SAMPLE.read_text()))

    assert podset.metadata.name == "podset-sample"
    assert podset.spec.replicas == 3
    assert podset.spec.template is None
    assert podset.spec.update_strategy.type is UpdateType.ON_DELETE
    assert podset.spec.pod_replacement_policy is PodReplacementPolicy.TERMINATION_STARTED


def test_former_name_of_rolling_updates_is_kept_as_it_was_written() -> None:
    strategy = {
        "type": "Recreate",
        "recreate": {"maxUnavailable": 1, "maxSurge": 0, "partition": 2},
    }
    podset = PodSet.parse(build_manifest(updateStrategy=strategy))

    assert podset.to_manifest()["spec"]["updateStrategy"] == strategy


def test_field_that_does_not_fit_is_named() -> None:
    with pytest.raises(ParseError, match=r"PodSet default/web: spec\.replicas: must be"):
        PodSet.parse(build_manifest(replicas=-1))


def test_autoscaler_finds_the_scale_subresource() -> None:
    version = build_crd(PodSet)["spec"]["versions"][0]

    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def test_kubectl_get_tells_how_a_set_is_doing() -> None:
    columns = build_crd(PodSet)["spec"]["versions"][0]["additionalPrinterColumns"]

    assert [column["name"] for column in columns if not column.get("priority")] == [
        "Desired",
        "Current",
        "Ready",
        "Updated",
        "Available",
        "Status",
        "Age",
    ]

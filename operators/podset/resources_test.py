from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from libs.common.labels import INSTANCE, MANAGED_BY
from operators.podset.api import PodSet
from operators.podset.naming import (
    ATTEMPT_ANNOTATION,
    SET_LABEL,
    SLOT_LABEL,
    TEMPLATE_HASH_LABEL,
)
from operators.podset.resources import build_blueprint, build_pod
from operators.podset.simulation import build_owner, build_podset

EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.yaml"))
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}


def test_default_pod_is_what_it_always_was() -> None:
    podset = build_podset("podset-sample", replicas=3)
    pod = build_pod(podset, build_blueprint(podset), 0, build_owner())

    (container,) = pod["spec"]["containers"]
    assert pod["metadata"]["name"] == "podset-sample-pod-0"
    assert pod["metadata"]["labels"].items() >= {"app": "podset-sample", "version": "v0.1"}.items()
    assert (container["image"], container["command"]) == ("busybox", ["sleep", "3600"])


def test_default_pod_fits_the_restricted_pod_security_standard() -> None:
    podset = build_podset()
    spec = build_blueprint(podset).spec

    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_image_of_the_default_pod_follows_the_settings() -> None:
    blueprint = build_blueprint(build_podset(), default_image="registry.example.com/busybox:1")

    assert blueprint.spec["containers"][0]["image"] == "registry.example.com/busybox:1"


def test_pods_without_a_template_are_not_replaced_if_the_default_pod_changes() -> None:
    """Another default image or another version of the operator is no change of the set."""
    usual = build_blueprint(build_podset())
    other = build_blueprint(build_podset(), default_image="registry.example.com/busybox:1")

    assert usual.spec != other.spec
    assert usual.template_hash == other.template_hash
    # The hash of what users can see: pods that run have it, so no version may change it.
    assert usual.template_hash == "5320b9074b"


def test_pod_of_a_template_has_its_metadata_and_ours() -> None:
    podset = build_podset(template=TEMPLATE)
    blueprint = build_blueprint(podset)
    pod = build_pod(podset, blueprint, 4, build_owner(), attempt=2)

    assert pod["metadata"] == {
        "name": "web-pod-4",
        "namespace": "default",
        "labels": {
            "app": "x",
            MANAGED_BY: "podset",
            INSTANCE: "web",
            SET_LABEL: "web",
            TEMPLATE_HASH_LABEL: blueprint.template_hash,
            SLOT_LABEL: "4",
        },
        "annotations": {"a": "b", ATTEMPT_ANNOTATION: "2"},
        "ownerReferences": [build_owner()],
    }
    assert pod["spec"] == TEMPLATE["spec"]


@pytest.mark.parametrize("selects", [True, False], ids=["selector", "no selector"])
def test_labels_of_an_application_in_the_template_win(selects: bool) -> None:
    """Charts put them on pods, and their Services select by them."""
    labels = {INSTANCE: "release", MANAGED_BY: "Helm"}
    spec: dict[str, Any] = {"template": {**TEMPLATE, "metadata": {"labels": labels}}}
    if selects:
        spec["selector"] = {"matchLabels": labels}
    blueprint = build_blueprint(build_podset(**spec))

    assert blueprint.labels.items() >= labels.items()
    assert blueprint.selector["matchLabels"].items() <= blueprint.labels.items()


def test_pods_behind_a_headless_service_have_dns_names_of_their_own() -> None:
    spec = {**TEMPLATE["spec"], "hostname": "same", "subdomain": "other"}
    podset = build_podset(template={**TEMPLATE, "spec": spec}, serviceName="db")
    blueprint = build_blueprint(podset)
    pods = [build_pod(podset, blueprint, slot, build_owner()) for slot in (0, 7)]

    assert [(pod["spec"]["hostname"], pod["spec"]["subdomain"]) for pod in pods] == [
        ("web-pod-0", "db"),
        ("web-pod-7", "db"),
    ]
    assert pods[0]["spec"]["containers"] == TEMPLATE["spec"]["containers"]
    assert blueprint.spec["hostname"] == "same"


def test_hash_changes_with_the_template_alone() -> None:
    usual = build_blueprint(build_podset(template=TEMPLATE, replicas=1)).template_hash
    scaled = build_blueprint(build_podset(template=TEMPLATE, replicas=9)).template_hash
    reordered = {"spec": TEMPLATE["spec"], "metadata": TEMPLATE["metadata"]}
    changed = {**TEMPLATE, "metadata": {"labels": {"app": "y"}}}

    assert usual == scaled
    assert usual == build_blueprint(build_podset(template=reordered)).template_hash
    assert usual != build_blueprint(build_podset(template=changed)).template_hash


def test_set_without_a_selector_finds_the_pods_that_it_made() -> None:
    blueprint = build_blueprint(build_podset(template=TEMPLATE))

    assert blueprint.selector["matchLabels"].items() <= blueprint.labels.items()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_a_set_that_pods_can_be_made_of(path: Path) -> None:
    podset, *_ = yaml.safe_load_all(path.read_text())
    parsed = PodSet.parse(podset)
    pod = build_pod(parsed, build_blueprint(parsed), 0, build_owner(parsed.metadata.name))

    assert podset["metadata"]["name"] == path.stem
    assert pod["metadata"]["name"] == f"{path.stem}-pod-0"
    assert pod["spec"]["containers"]


def test_examples_cover_what_the_readme_shows() -> None:
    assert [path.stem for path in EXAMPLES] == [
        "podset-hpa",
        "podset-rolling-update",
        "podset-sample",
        "podset-template",
    ]

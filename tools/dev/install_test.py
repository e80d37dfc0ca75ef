"""When a rollout is complete, when it has failed, and the arguments of helm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.cluster.cache import Cache
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.kubectl import Kubectl
from tools.cluster.progress import Progress
from tools.dev.install import (
    Release,
    build_helm_command,
    describe_pod,
    find_failure,
    is_rolled_out,
    run_helm,
)
from tools.dev.options import Target


def build_deployment(generation: int = 1, **status: int) -> dict[str, Any]:
    return {
        "metadata": {"generation": generation},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 1, **status},
    }


def build_pod(reason: str, restarts: int = 0) -> dict[str, Any]:
    waiting = {"reason": reason, "message": "why"}
    container = {"state": {"waiting": waiting}, "restartCount": restarts, "ready": False}
    return {"metadata": {"name": "pod"}, "status": {"containerStatuses": [container]}}


@pytest.mark.parametrize(
    ("deployment", "done"),
    [
        (build_deployment(updatedReplicas=2, availableReplicas=2, replicas=2), True),
        (build_deployment(updatedReplicas=1, availableReplicas=2, replicas=3), False),
        (build_deployment(updatedReplicas=2, availableReplicas=2, replicas=3), False),
        (build_deployment(updatedReplicas=2, availableReplicas=1, replicas=2), False),
        (build_deployment(2, updatedReplicas=2, availableReplicas=2, replicas=2), False),
        (build_deployment(), False),
    ],
    ids=["done", "updating", "old pod left", "not available", "not observed", "new"],
)
def test_roll_out_is_done_when_all_pods_are_new_and_available(
    deployment: dict[str, Any], done: bool
) -> None:
    assert is_rolled_out(deployment) is done


@pytest.mark.parametrize(
    ("pod", "failed"),
    [
        (build_pod("ContainerCreating"), False),
        (build_pod("ErrImagePull"), False),
        (build_pod("ImagePullBackOff"), True),
        (build_pod("CreateContainerConfigError"), True),
        (build_pod("CrashLoopBackOff", restarts=1), False),
        (build_pod("CrashLoopBackOff", restarts=3), True),
    ],
)
def test_roll_out_fails_early_where_waiting_does_not_help(
    pod: dict[str, Any], failed: bool
) -> None:
    assert (find_failure([pod]) is not None) is failed


def test_missing_image_is_told_with_what_to_do() -> None:
    assert "with --image" in (find_failure([build_pod("ImagePullBackOff")]) or "")
    assert "--image" not in (find_failure([build_pod("CrashLoopBackOff", restarts=3)]) or "")


def test_pod_is_described_by_what_it_waits_for() -> None:
    assert describe_pod(build_pod("ContainerCreating")) == "pod: ContainerCreating"
    assert describe_pod({"metadata": {"name": "pod"}}) == "pod: Pending"


def test_helm_is_told_cluster_namespace_and_image(tmp_path: Path) -> None:
    target = Target(Kubectl(Path("k"), Path("/config"), "there"), None)
    command = build_helm_command(
        "helm", Release("podset", "team"), target, "host:5000/slipway/podset:dev-1", ["replicas=2"]
    )
    text = " ".join(command)

    assert text.startswith("helm upgrade podset ")
    assert "--namespace team --create-namespace --kubeconfig /config --kube-context there" in text
    assert "--take-ownership" in command
    assert "image.repository=host:5000/slipway/podset --set-string image.tag=dev-1" in text
    assert text.endswith("--set replicas=2")


@pytest.mark.parametrize(
    ("image", "messages"),
    [
        (
            "slipway/podset:1",
            "slipway/podset --set-string image.tag=1 --set-string image.pullPolicy=Never",
        ),
        ("host:5/podset@sha256:ab", "repository=host:5/podset --set-string image.digest=sha256:ab"),
        (
            "host:5/podset:1@sha256:ab",
            "repository=host:5/podset --set-string image.digest=sha256:ab",
        ),
    ],
)
def test_image_is_named_by_tag_or_digest(image: str, messages: str) -> None:
    target = Target(Kubectl(Path("k")), None)

    assert messages in " ".join(build_helm_command("helm", Release("podset", "d"), target, image))


@pytest.mark.parametrize("image", ["podset", "host:5000/podset"])
def test_image_without_a_tag_is_refused(image: str) -> None:
    target = Target(Kubectl(Path("k")), None)

    with pytest.raises(ToolError, match=f"--image {image} has no tag"):
        build_helm_command("helm", Release("podset", "d"), target, image)


@pytest.fixture
def interrupted(tmp_path: Path) -> tuple[Kubectl, list[str]]:
    """Stand in for kubectl and helm, which finds the record of a run until it is removed."""
    record, kubectl, helm = (tmp_path / name for name in ("record", "kubectl", "helm"))
    record.touch()
    kubectl.write_text(f'#!/bin/sh\nrm {record}; echo "$*" >{tmp_path}/told\n')
    refusal = "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress"
    helm.write_text(f"#!/bin/sh\n[ ! -e {record} ] || {{ echo '{refusal}'; exit 1; }}\n")
    for script in (kubectl, helm):
        script.chmod(0o755)
    return Kubectl(kubectl), [str(helm), "upgrade"]


def test_interrupted_install_is_gone_on_with(
    tmp_path: Path, interrupted: tuple[Kubectl, list[str]]
) -> None:
    kubectl, command = interrupted
    target = Target(kubectl, KindCluster("x", Cache(tmp_path)))

    run_helm(command, Release("podset", "team"), target, Progress(tmp_path / "log"))

    messages = (tmp_path / "told").read_text()
    assert messages.startswith("delete secrets --namespace team --selector owner=helm,name=podset,")
    assert "pending-upgrade" in messages


def test_record_of_helm_is_left_alone_where_somebody_else_may_be_at_work(
    tmp_path: Path, interrupted: tuple[Kubectl, list[str]]
) -> None:
    kubectl, command = interrupted

    with pytest.raises(ToolError, match="kubectl delete secrets --namespace team"):
        run_helm(
            command, Release("podset", "team"), Target(kubectl, None), Progress(tmp_path / "log")
        )
    assert (tmp_path / "record").exists()


def test_chart_keeps_its_image_where_none_is_given(tmp_path: Path) -> None:
    cluster = KindCluster("x", Cache(tmp_path))
    target = Target(Kubectl(Path("k"), cluster.kubeconfig), cluster)

    command = build_helm_command("helm", Release("podset", "d"), target, None)
    assert "--set-string" not in command

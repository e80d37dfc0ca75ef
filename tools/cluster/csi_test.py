"""The objects of the CSI driver fit together, and the versions of its parts fit each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.cluster import csi
from tools.cluster.versions import SNAPSHOT_CLIENT, TOOL_DIRECTORIES, read_pin

HERE = Path(__file__).parent
IMAGE = "docker.io/slipway/csi:1"


def find(kind: str) -> dict[str, Any]:
    """Return the only object of a kind."""
    (found,) = [each for each in csi.build_manifests(IMAGE) if each["kind"] == kind]
    return found


def read_pod() -> dict[str, Any]:
    """Return the spec of the pod."""
    pod: dict[str, Any] = find("Deployment")["spec"]["template"]["spec"]
    return pod


def read_flag(container: dict[str, Any], name: str) -> str:
    """Return the value of a flag of a container."""
    (value,) = [
        each.partition("=")[2] for each in container["args"] if each.startswith(f"--{name}=")
    ]
    return str(value)


def test_every_program_of_the_image_runs_in_a_container() -> None:
    containers = read_pod()["containers"]

    assert sorted(each["command"][0] for each in containers) == [
        "/csi-driver",
        "/csi-provisioner",
        "/csi-resizer",
        "/csi-snapshotter",
        "/snapshot-controller",
    ]
    assert {each["image"] for each in containers} == {IMAGE}
    assert {each["command"][0].removeprefix("/") for each in containers} == set(csi.PROGRAMS)
    assert set(csi.PROGRAMS) <= set(TOOL_DIRECTORIES)


def test_classes_name_the_driver_that_registers_with_the_kubelet() -> None:
    name = read_flag(read_pod()["containers"][0], "name")

    assert find("CSIDriver")["metadata"]["name"] == name
    assert find("StorageClass")["provisioner"] == name
    assert find("VolumeSnapshotClass")["driver"] == name


def test_sidecars_and_kubelet_reach_the_socket_of_the_driver() -> None:
    pod = read_pod()
    driver, *others = pod["containers"]
    socket = Path(read_flag(driver, "endpoint"))
    volumes = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"]}

    # The driver registers the path in its container, so it must be the path on the node.
    mounts = {each["mountPath"]: volumes[each["name"]] for each in driver["volumeMounts"]}
    assert all(inside == outside for inside, outside in mounts.items())
    assert any(socket.is_relative_to(path) for path in mounts)
    for sidecar in (each for each in others if "volumeMounts" in each):
        assert read_flag(sidecar, "csi-address") == str(socket)
        (mount,) = sidecar["volumeMounts"]
        assert mount["mountPath"] == volumes[mount["name"]] == str(socket.parent)


def test_mounts_of_the_driver_reach_the_node() -> None:
    driver, *_ = read_pod()["containers"]

    assert driver["securityContext"]["privileged"]
    assert {each["mountPropagation"] for each in driver["volumeMounts"]} == {"Bidirectional"}


@pytest.mark.parametrize("folder", ["csi_driver", "csi_sidecars"])
def test_versions_are_pinned_by_checksums(folder: str) -> None:
    assert (HERE / folder / "go.sum").stat().st_size


def test_crds_are_those_of_the_snapshot_controller() -> None:
    module, _, version = SNAPSHOT_CLIENT.partition("@")
    controller = module.replace("/client/", "/")

    assert read_pin("csi_sidecars", controller) == f"{controller}@{version}"

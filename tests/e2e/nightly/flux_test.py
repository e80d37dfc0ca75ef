"""Flux installs, upgrades and uninstalls each operator from its file in `deploy/gitops/flux`.

The controllers of Flux run as processes beside the cluster, and fetch the charts from a registry on
this machine. Besides the address of the registry, the files get the images under test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

import pytest
import yaml

from libs.common.kinds import DEPLOYMENT, Key, Kind
from libs.common.testing.helm import find_charts
from libs.common.testing.ports import find_free_port
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.nightly.gitops import (
    VERSION,
    ChartRegistry,
    UserVolume,
    build_image_values,
    read_file,
    run,
    run_controller,
    serve_charts,
)
from tools.cluster.binaries import ensure_tool, find_kubectl
from tools.cluster.errors import ToolError
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress
from tools.cluster.versions import FLUX_MODULES

OCI_REPOSITORY: Final = Kind("source.toolkit.fluxcd.io", "v1", "OCIRepository", "ocirepositories")
HELM_RELEASE: Final = Kind("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases")
_NEXT: Final = "0.1.99"
"""A later version in the range that the files ask for."""
_NOW: Final = "reconcile.fluxcd.io/requestedAt"
"""Annotation whose change makes Flux look at an object."""


@pytest.fixture(scope="module")
def charts(
    kind_cluster: KindCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChartRegistry]:
    """Install the CRDs of Flux, and run its controllers and a registry."""
    progress = open_progress("flux")
    folder = tmp_path_factory.mktemp("flux")
    kubectl, kubeconfig = find_kubectl(kind_cluster.cache), kind_cluster.kubeconfig
    for module in FLUX_MODULES:
        crds = ensure_go(progress).module_directory(module) / "config" / "crd" / "bases"
        where = ("--kubeconfig", kubeconfig, "--filename", crds)
        run(kubectl, "apply", "--server-side", *where)
    storage = f"127.0.0.1:{find_free_port()}"
    flags = {
        "source-controller": (
            *(f"--storage-addr={storage}", f"--storage-adv-addr={storage}"),
            f"--storage-path={folder}",
        ),
        "helm-controller": (),
    }
    environment = {"KUBECONFIG": str(kubeconfig), "RUNTIME_NAMESPACE": "default"}
    with ExitStack() as stack:
        try:
            charts = stack.enter_context(serve_charts(folder))
        except ToolError as err:
            pytest.skip(str(err))
        for name, own in flags.items():
            health = f"--health-addr=127.0.0.1:{find_free_port()}"
            command = (ensure_tool(name, progress), "--metrics-addr=0", health, *own)
            stack.enter_context(run_controller(name, command, folder, environment))
        yield charts


async def apply_release(
    cluster: Cluster, charts: ChartRegistry, operator: str, namespace: str
) -> Key:
    """Apply the file of an operator; return namespace and name of the release."""
    repository, release = read_file("flux", operator)
    repository["spec"]["url"] = f"oci://{charts.address}/charts/{operator}"
    repository["spec"]["insecure"] = True
    release["spec"]["values"] |= build_image_values(cluster, operator)
    release["spec"]["values"]["watch"] = {"namespaces": [namespace]}
    for manifest in (repository, release):
        manifest["metadata"]["namespace"] = namespace
    text = yaml.safe_dump_all([repository, release])
    await cluster.kubectl_run(namespace, "apply", "--filename=-", stdin=text)
    return Key(namespace, release["metadata"]["name"])


async def wait_released(cluster: Cluster, key: Key, version: str) -> None:
    """Wait until Flux reports that a version is installed."""

    async def probe() -> bool:
        release = await cluster.client.get(HELM_RELEASE, key)
        status: Mapping[str, Any] = release.get("status") or {}
        conditions = {each["type"]: each for each in status.get("conditions") or ()}
        assert conditions.get("Ready", {}).get("status") == "True", conditions
        # Flux may report Ready shortly before it writes the history.
        last: Mapping[str, Any] = next(iter(status.get("history") or ()), {})
        return bool(last.get("chartVersion", "").startswith(version))

    await eventually(probe, f"Flux has installed {version} of {key}", timeout=180)


@pytest.mark.parametrize("operator", find_charts())
async def test_flux_installs_and_uninstalls(
    cluster: Cluster, charts: ChartRegistry, operator: str
) -> None:
    namespace = await cluster.make_namespace(f"flux-{operator}")
    charts.push(cluster.helm, operator)

    key = await apply_release(cluster, charts, operator, namespace)
    await wait_released(cluster, key, VERSION)
    deployment = await cluster.client.get(DEPLOYMENT, key)
    assert deployment["status"]["availableReplicas"] == 2

    await cluster.delete(HELM_RELEASE, key)
    await cluster.wait_gone(HELM_RELEASE, key)
    await cluster.wait_gone(DEPLOYMENT, key)


async def test_flux_upgrades_and_uninstalls_and_no_data_is_lost(
    cluster: Cluster, charts: ChartRegistry
) -> None:
    namespace = await cluster.make_namespace("flux")
    charts.push(cluster.helm, "volumes")
    key = await apply_release(cluster, charts, "volumes", namespace)
    await wait_released(cluster, key, VERSION)
    volume = await UserVolume.create(cluster, namespace)

    charts.push(cluster.helm, "volumes", _NEXT)
    await cluster.client.patch(OCI_REPOSITORY, key, {"metadata": {"annotations": {_NOW: "once"}}})
    await wait_released(cluster, key, _NEXT)
    await volume.check_claim()

    await cluster.delete(HELM_RELEASE, key)
    await cluster.wait_gone(HELM_RELEASE, key)
    await volume.check_released()

"""Flux installs, upgrades and uninstalls each operator from its file in `deploy/gitops/flux`.

The controllers of Flux run as processes beside the cluster, and fetch the charts from a registry on
this machine. Besides the address of the registry, the files get the images under test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from libs.common.kinds import DEPLOYMENT, PVC, Key, Kind, Manifest, uid_of
from libs.common.testing.helm import CHARTS, find_charts
from libs.common.testing.ports import find_free_port
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from tests.e2e.cluster import ROOT, Cluster, eventually
from tests.e2e.volumes_test import build_volume
from tools.cluster.binaries import ensure_tool, find_kubectl
from tools.cluster.errors import ToolError
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress
from tools.cluster.registry import run_registry
from tools.cluster.versions import FLUX_MODULES
from tools.release.chart import build_chart

OCI_REPOSITORY: Final = Kind("source.toolkit.fluxcd.io", "v1", "OCIRepository", "ocirepositories")
HELM_RELEASE: Final = Kind("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases")
_VERSION: Final = "0.1.0"
_NEXT: Final = "0.1.99"
"""A later version in the range that the files ask for."""
_NOW: Final = "reconcile.fluxcd.io/requestedAt"
"""Annotation whose change makes Flux look at an object."""


@dataclass(frozen=True, slots=True)
class Flux:
    """Flux, and the registry that it fetches charts from.

    Attributes:
        registry: Host and port.
        folder: Folder for charts.
    """

    registry: str
    folder: Path

    def push(self, helm: Path, operator: str, version: str = _VERSION) -> None:
        """Push the chart of an operator as a release does, in a version."""
        chart = self.folder / version / operator
        shutil.rmtree(chart, ignore_errors=True)
        build_chart(CHARTS / operator, chart, None, None)
        where = ("--version", version, "--destination", self.folder)
        _run(helm, "package", chart, *where)
        package = self.folder / f"{operator}-{version}.tgz"
        _run(helm, "push", package, f"oci://{self.registry}/charts", "--plain-http")


def _run(program: Path, *args: object) -> None:
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextmanager
def _run_controller(name: str, kubeconfig: Path, folder: Path, *flags: str) -> Iterator[None]:
    """Run a controller of Flux; its log is in the folder."""
    program = ensure_tool(name, open_progress("flux"))
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "RUNTIME_NAMESPACE": "default"}
    addresses = ("--metrics-addr=0", f"--health-addr=127.0.0.1:{find_free_port()}")
    with (folder / f"{name}.log").open("wb") as log:
        command = [str(program), "--log-level=debug", *addresses, *flags]
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def flux(kind_cluster: KindCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flux]:
    """Install the CRDs of Flux, and run its controllers and a registry."""
    folder = tmp_path_factory.mktemp("flux")
    go = ensure_go(open_progress("flux"))
    kubectl = find_kubectl(kind_cluster.cache)
    cluster = ("--kubeconfig", kind_cluster.kubeconfig)
    for module in FLUX_MODULES:
        crds = go.module_directory(module) / "config" / "crd" / "bases"
        _run(kubectl, "apply", "--server-side", "--filename", crds, *cluster)
    storage = f"127.0.0.1:{find_free_port()}"
    with ExitStack() as stack:
        try:
            registry = stack.enter_context(run_registry(tmp_path_factory.mktemp("registry")))
        except ToolError as err:
            pytest.skip(str(err))
        flags = (f"--storage-addr={storage}", f"--storage-adv-addr={storage}")
        place = f"--storage-path={folder}"
        run = stack.enter_context
        kubeconfig = kind_cluster.kubeconfig
        run(_run_controller("source-controller", kubeconfig, folder, *flags, place))
        run(_run_controller("helm-controller", kubeconfig, folder))
        yield Flux(registry, folder)


async def apply_release(
    cluster: Cluster, flux: Flux, operator: str, namespace: str, **values: object
) -> Key:
    """Apply the file of an operator; return namespace and name of the release."""
    text = (ROOT / "deploy" / "gitops" / "flux" / f"{operator}.yaml").read_text()
    repository, release = yaml.safe_load_all(text)
    repository["spec"]["url"] = f"oci://{flux.registry}/charts/{operator}"
    repository["spec"]["insecure"] = True
    image, _, tag = cluster.images[operator].rpartition(":")
    loaded = {"repository": image, "tag": tag, "pullPolicy": "Never"}
    release["spec"]["values"] |= {"image": loaded, **values}
    for manifest in (repository, release):
        manifest["metadata"]["namespace"] = namespace
    await cluster.kubectl_run(
        namespace, "apply", "--filename=-", stdin=yaml.safe_dump_all([repository, release])
    )
    return Key(namespace, release["metadata"]["name"])


async def wait_released(cluster: Cluster, key: Key, version: str) -> Manifest:
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
    return await cluster.client.get(HELM_RELEASE, key)


@pytest.mark.parametrize("operator", find_charts())
async def test_flux_installs_and_uninstalls(cluster: Cluster, flux: Flux, operator: str) -> None:
    namespace = await cluster.make_namespace(f"flux-{operator}")
    flux.push(cluster.helm, operator)

    key = await apply_release(cluster, flux, operator, namespace)
    await wait_released(cluster, key, _VERSION)
    deployment = await cluster.client.get(DEPLOYMENT, key)
    assert deployment["status"]["availableReplicas"] == 2

    await cluster.delete(HELM_RELEASE, key)
    await cluster.wait_gone(HELM_RELEASE, key)
    await cluster.wait_gone(DEPLOYMENT, key)


async def test_flux_upgrades_and_uninstalls_and_no_data_is_lost(
    cluster: Cluster, flux: Flux
) -> None:
    namespace = await cluster.make_namespace("flux")
    flux.push(cluster.helm, "volumes")
    key = await apply_release(cluster, flux, "volumes", namespace)
    await wait_released(cluster, key, _VERSION)
    await cluster.client.create(DEMO_VOLUME, build_volume(namespace, reclaimPolicy="Retain"))
    data = Key(namespace, "data")
    await eventually(lambda: cluster.client.get(PVC, data), "the claim exists")
    claim = uid_of(await cluster.client.get(PVC, data))

    flux.push(cluster.helm, "volumes", _NEXT)
    await cluster.client.patch(OCI_REPOSITORY, key, {"metadata": {"annotations": {_NOW: "once"}}})
    await wait_released(cluster, key, _NEXT)
    assert uid_of(await cluster.client.get(PVC, data)) == claim

    await cluster.delete(HELM_RELEASE, key)
    await cluster.wait_gone(HELM_RELEASE, key)
    volume = await cluster.client.get(DEMO_VOLUME, data)
    assert not volume["metadata"].get("finalizers")
    assert uid_of(await cluster.client.get(PVC, data)) == claim

"""Argo CD installs, upgrades and deletes each operator from its file in `deploy/gitops/argocd`.

The application controller and the repo server of Argo CD run as processes beside the cluster, and
fetch the charts from a registry on this machine; an in-memory cache takes the place of Redis.
Besides the address of the registry, the files get the images under test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from libs.common.kinds import CRD, DEPLOYMENT, Key, Kind
from libs.common.testing.helm import find_charts
from libs.common.testing.ports import find_free_port
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
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
from tools.cluster.versions import ARGO_CD_MODULE

APPLICATION: Final = Kind("argoproj.io", "v1alpha1", "Application", "applications")
_NAMESPACE: Final = "argocd"
_NEXT: Final = "0.1.1"
_CASCADE: Final = "resources-finalizer.argocd.argoproj.io"
"""Finalizer with which Argo CD deletes what an Application installed."""


def build_settings(registry: str) -> list[Mapping[str, Any]]:
    """Build what the installation of Argo CD creates, and the registry as a repository."""
    everything = [{"group": "*", "kind": "*"}]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}},
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "AppProject",
            "metadata": {"name": "default", "namespace": _NAMESPACE},
            "spec": {
                "sourceRepos": ["*"],
                "destinations": [{"namespace": "*", "server": "*"}],
                "clusterResourceWhitelist": everything,
            },
        },
        _build_secret("argocd-secret", {"app.kubernetes.io/part-of": "argocd"}, key="test"),
        _build_secret(
            "charts",
            {"argocd.argoproj.io/secret-type": "repository"},
            name="charts",
            type="helm",
            url=f"{registry}/charts",
            enableOCI="true",
            insecureOCIForceHttp="true",
        ),
    ]


def _build_secret(name: str, labels: Mapping[str, str], /, **data: str) -> Mapping[str, Any]:
    metadata = {"name": name, "namespace": _NAMESPACE, "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


@pytest.fixture(scope="module")
def charts(
    kind_cluster: KindCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChartRegistry]:
    """Install the CRDs and settings of Argo CD, and run its controllers and a registry."""
    progress = open_progress("argo-cd")
    folder = tmp_path_factory.mktemp("argocd")
    manifests = ensure_go(progress).module_directory(ARGO_CD_MODULE) / "manifests"
    program = ensure_tool("argo-cd", progress)
    with ExitStack() as stack:
        try:
            charts = stack.enter_context(serve_charts(folder))
        except ToolError as err:
            pytest.skip(str(err))
        _install(kind_cluster, manifests, charts)
        redis, repository = (f"127.0.0.1:{find_free_port()}" for _ in range(2))
        environment = {
            # The cluster that the controller manages is the one of its kubeconfig.
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_GPG_ENABLED": "false",
            "ARGOCD_TLS_DATA_PATH": str(folder / "tls"),
            "ARGOCD_SSH_DATA_PATH": str(folder / "ssh"),
            "HOSTNAME": "argocd-application-controller-0",
            "KUBECONFIG": str(kind_cluster.kubeconfig),
            "PATH": f"{ensure_tool('helm').parent}:/usr/bin:/bin",
        }
        port = f"--port={repository.rpartition(':')[2]}"
        plain = ("--disable-tls", "--client-ca-path=")
        server = (f"--repo-server={repository}", "--repo-server-plaintext")
        where = (f"--namespace={_NAMESPACE}", "--app-resync=10")
        run_program = partial(_run, program, folder, environment)
        stack.enter_context(run_program("cache", redis))
        for command in (
            ("argocd-repo-server", port, *plain),
            ("argocd-application-controller", *server, *where),
        ):
            metrics = f"--metrics-port={find_free_port()}"
            stack.enter_context(run_program(*command, f"--redis={redis}", metrics))
        yield charts


def _run(
    program: Path, folder: Path, environment: Mapping[str, str], name: str, *words: str
) -> AbstractContextManager[None]:
    return run_controller(name, (program, name, *words), folder, environment)


def _install(kind_cluster: KindCluster, manifests: Path, charts: ChartRegistry) -> None:
    kubectl = (find_kubectl(kind_cluster.cache), "--kubeconfig", kind_cluster.kubeconfig)
    crds, settings = manifests / "crds", charts.folder / "settings.yaml"
    settings.write_text(yaml.safe_dump_all(build_settings(charts.address)))
    run(*kubectl, "apply", "--server-side", "--kustomize", crds)
    for kind in ("applications", "appprojects"):
        crd = f"customresourcedefinition/{kind}.argoproj.io"
        run(*kubectl, "wait", "--for=condition=Established", crd)
    run(*kubectl, "apply", "--filename", settings)
    defaults = manifests / "base" / "config" / "argocd-cm.yaml"
    run(*kubectl, "apply", "--namespace", _NAMESPACE, "--filename", defaults)


async def apply_application(
    cluster: Cluster, charts: ChartRegistry, operator: str, namespace: str
) -> Key:
    """Apply the file of an operator; return namespace and name of the Application."""
    (application,) = read_file("argocd", operator)
    spec = application["spec"]
    spec["source"]["repoURL"] = f"{charts.address}/charts"
    spec["source"]["helm"]["valuesObject"] |= build_image_values(cluster, operator)
    spec["destination"]["namespace"] = namespace
    spec["source"]["helm"]["valuesObject"]["watch"] = {"namespaces": [namespace]}
    application["metadata"]["finalizers"] = [_CASCADE]
    text = yaml.safe_dump(application)
    await cluster.kubectl_run(_NAMESPACE, "apply", "--filename=-", stdin=text)
    return Key(_NAMESPACE, application["metadata"]["name"])


async def wait_synced(cluster: Cluster, key: Key, version: str) -> None:
    """Wait until Argo CD reports that a version is installed and works."""

    async def probe() -> bool:
        status = (await cluster.client.get(APPLICATION, key)).get("status") or {}
        sync, health = status.get("sync") or {}, status.get("health") or {}
        seen = (sync.get("revision"), sync.get("status"), health.get("status"))
        assert seen == (version, "Synced", "Healthy"), (seen, status.get("conditions"))
        return True

    await eventually(probe, f"Argo CD has installed {version} of {key}", timeout=180)


@pytest.mark.parametrize("operator", find_charts())
async def test_argo_cd_installs_and_deletes(
    cluster: Cluster, charts: ChartRegistry, operator: str
) -> None:
    namespace = await cluster.make_namespace(f"argo-{operator}")
    charts.push(cluster.helm, operator)

    key = await apply_application(cluster, charts, operator, namespace)
    await wait_synced(cluster, key, VERSION)
    deployment = await cluster.client.get(DEPLOYMENT, Key(namespace, operator))
    assert deployment["status"]["availableReplicas"] == 2

    await cluster.delete(APPLICATION, key)
    await cluster.wait_gone(APPLICATION, key)
    await cluster.wait_gone(DEPLOYMENT, Key(namespace, operator))


async def test_argo_cd_upgrades_and_deletes_and_no_data_is_lost(
    cluster: Cluster, charts: ChartRegistry
) -> None:
    namespace = await cluster.make_namespace("argo")
    charts.push(cluster.helm, "volumes")
    key = await apply_application(cluster, charts, "volumes", namespace)
    await wait_synced(cluster, key, VERSION)
    volume = await UserVolume.create(cluster, namespace)

    charts.push(cluster.helm, "volumes", _NEXT)
    change = {"spec": {"source": {"targetRevision": _NEXT}}}
    await cluster.client.patch(APPLICATION, key, change)
    await wait_synced(cluster, key, _NEXT)
    await volume.check_claim()

    await cluster.delete(APPLICATION, key)
    await cluster.wait_gone(APPLICATION, key)
    await volume.check_claim()
    # Argo CD 3.5.7 does not wait for the hook if its cache lacks the Job that it has just created.
    await volume.remove_finalizers()
    await volume.check_released()
    names = {crd["metadata"]["name"] for crd in (await cluster.client.list(CRD)).items}
    assert f"{DEMO_VOLUME.plural}.{DEMO_VOLUME.group}" in names

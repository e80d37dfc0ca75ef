"""Versions in the objects that the real kubeadm makes, on a real API server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from libs.common.client import Client
from libs.common.errors import Conflict
from libs.common.kinds import CONFIG_MAP, build_object
from libs.common.reading import text_at
from libs.common.testing.apiserver import ControlPlane
from operators.clusters.bootstrap import Membership, Role, render_kubeadm
from operators.clusters.samples import ADDRESS, authorities, credentials, parse_cluster
from operators.clusters.upgrade import SetProxyVersion, SetVersion
from operators.clusters.version_writer import (
    CONFIG,
    DAEMON_SET,
    PROXY,
    read_proxy_version,
    read_version,
    write_proxy_version,
    write_version,
)

pytestmark = pytest.mark.apiserver


async def test_versions_of_what_kubeadm_made_are_changed_and_nothing_else(
    kube_apiserver: ControlPlane, kube_client: Client, kubeadm: Path, tmp_path: Path
) -> None:
    new = run(kubeadm, "version", "--output=short").strip()
    minor = int(new.split(".")[1])
    old = f"v1.{minor - 1}.0"
    member = Membership(parse_cluster(version=old), ADDRESS, authorities(), credentials()[1])
    config = tmp_path / "kubeadm.yaml"
    config.write_text(render_kubeadm(member, Role.INIT, None).replace("@ADDRESS@", "10.0.0.5"))
    kubeconfig = kube_apiserver.write_kubeconfig(tmp_path / "admin.conf")
    # kubeadm supports the minor version before its own, as it does during an upgrade.
    for phase in (("upload-config", "kubeadm"), ("addon", "kube-proxy")):
        run(kubeadm, "init", "phase", *phase, f"--config={config}", f"--kubeconfig={kubeconfig}")
    before = await kube_client.get(CONFIG_MAP, CONFIG)
    proxy = await kube_client.get(DAEMON_SET, PROXY)
    assert (await read_version(kube_client), await read_proxy_version(kube_client)) == (old, old)

    await write_version(kube_client, SetVersion(old, new))
    await write_version(kube_client, SetVersion(old, new))  # A crash after it repeats it.
    await write_proxy_version(kube_client, SetProxyVersion(new))

    assert (await read_version(kube_client), await read_proxy_version(kube_client)) == (new, new)
    after = await kube_client.get(CONFIG_MAP, CONFIG)
    assert _lines(after) == _lines(before) - {f"kubernetesVersion: {old}"} | {
        f"kubernetesVersion: {new}"
    }
    changed = await kube_client.get(DAEMON_SET, PROXY)
    (container,) = proxy["spec"]["template"]["spec"]["containers"]
    container["image"] = container["image"].replace(old, new)
    assert changed["spec"]["template"]["spec"] == proxy["spec"]["template"]["spec"]
    # kubeadm of the new version reads what was written.
    config.write_text(after["data"]["ClusterConfiguration"])
    answer = run(kubeadm, "config", "validate", f"--config={config}")
    assert "unknown field" not in answer

    with pytest.raises(Conflict):
        await write_version(kube_client, SetVersion(old, "v1.99.0"))


async def test_image_of_somebody_else_is_not_changed(kube_client: Client) -> None:
    labels = {"k8s-app": "kube-proxy"}
    for image in ("registry.example.com/mine:v1.1.0", "registry.k8s.io/kube-proxy@sha256:00"):
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "kube-proxy", "image": image}]},
        }
        spec = {"selector": {"matchLabels": labels}, "template": template}
        manifest = build_object(DAEMON_SET, PROXY.name, PROXY.namespace, spec=spec)
        await kube_client.apply(DAEMON_SET, manifest, field_manager="test")

        assert await read_proxy_version(kube_client) == ""


def run(*command: str | Path) -> str:
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    assert answer.returncode == 0, f"{answer.stdout}{answer.stderr}"
    return answer.stdout + answer.stderr


def _lines(config_map: dict[str, object]) -> set[str]:
    return {
        line.strip() for line in text_at(config_map, "data", "ClusterConfiguration").splitlines()
    }

"""The permissions of a bundle are enough in each install mode of the Operator Lifecycle Manager.

OLM itself does not run here. The tests grant what OLM grants: the permissions in the namespace of
the operator and in each namespace of its OperatorGroup, or everywhere if the group selects all
namespaces. They set the variables of the Deployment, with the annotation that OLM writes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from libs.common import fastyaml
from libs.common.client import Client
from libs.common.kinds import (
    CLUSTER_ROLE,
    LEASE,
    POD,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Key,
    Manifest,
    build_object,
)
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.harness import OperatorHarness
from operators.podset.controller import PODSET
from tests.namespaces.plane import (
    CLUSTER_ROLE_BINDING,
    OPERATORS,
    create_namespace,
    load_operator,
    log_in,
    wait_allowed,
)
from tools.cluster.binaries import ensure_tool
from tools.cluster.errors import ToolError
from tools.generate.sources import ROOT
from tools.release.bundle import read_chart, render_bundle
from tools.release.chart import Image, build_chart

_IMAGE: Final = Image("registry.example.com/team/operator", "sha256:" + "5" * 64)
_MODES: Final = {"own": 0, "single": 1, "multi": 2}
"""Install modes with the number of namespaces in the OperatorGroup besides the operator's own."""
_ALL: Final = "all"


def render_install(operator: str, folder: Path) -> Manifest:
    """Render the part of a bundle that says what OLM installs."""
    try:
        helm = str(ensure_tool("helm"))
    except ToolError as err:
        pytest.skip(str(err))
    build_chart(ROOT / "helm" / operator, folder / operator, _IMAGE, None)
    command = [helm, "package", str(folder / operator), "--destination", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    (package,) = folder.glob("*.tgz")
    files = render_bundle(Path(helm), read_chart(package), [str(_IMAGE)])
    (name,) = (name for name in files if name.endswith(".clusterserviceversion.yaml"))
    install: Manifest = fastyaml.load(files[name])["spec"]["install"]["spec"]
    return install


async def grant(client: Client, install: Manifest, home: str, targets: Sequence[str]) -> str:
    """Create the service account and its permissions; without targets, they apply everywhere.

    Returns:
        The name of the service account.
    """
    (permission,) = install["permissions"]
    account: str = permission["serviceAccountName"]
    await client.create(SERVICE_ACCOUNT, build_object(SERVICE_ACCOUNT, account, home))
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": home}]

    async def bind(rules: list[Manifest], name: str, namespace: str) -> None:
        role, binding = (ROLE, ROLE_BINDING) if namespace else (CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
        reference = {"apiGroup": role.group, "kind": role.kind, "name": name}
        await client.create(role, build_object(role, name, namespace, rules=rules))
        bound = build_object(binding, name, namespace, roleRef=reference, subjects=subjects)
        await client.create(binding, bound)

    for namespace in {home, *targets} if targets else {home, ""}:
        await bind(permission["rules"], home, namespace)
    for each in install.get("clusterPermissions", ()):
        await bind(each["rules"], f"{home}-cluster", "")
    return account


def set_environment(
    monkeypatch: pytest.MonkeyPatch, install: Manifest, home: str, targets: Sequence[str]
) -> None:
    """Set the variables of the Deployment as a kubelet does."""
    fields = {
        "metadata.name": "operator-0",
        "metadata.namespace": home,
        "metadata.annotations['olm.targetNamespaces']": ",".join(targets),
        "status.podIPs": "10.244.0.1",
    }
    (deployment,) = install["deployments"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for each in container["env"]:
        source = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        monkeypatch.setenv(each["name"], fields[source] if source else each["value"])


class Installation:
    """An operator that was installed by a bundle.

    Args:
        plane: API server.
        admin: Client with all permissions.
        operator_id: Id of the operator.
        mode: Install mode.
    """

    def __init__(self, plane: ControlPlane, admin: Client, operator_id: str, mode: str) -> None:
        self._plane, self._admin = plane, admin
        self.operator = load_operator(operator_id)
        self.home = f"{mode}-{operator_id}"
        others = [f"{self.home}-{index}" for index in range(_MODES.get(mode, 1))]
        self.watched = others or [self.home]
        controllers = self.operator.build_controllers(self.operator.settings())
        self._primary = next(each.primary for each in controllers if each.primary.namespaced)
        self.targets = [] if mode == _ALL else self.watched

    async def start(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> OperatorHarness:
        """Install and start the operator."""
        for namespace in {self.home, *self.watched}:
            await create_namespace(self._admin, namespace)
        install = render_install(self.operator.id, folder)
        account = await grant(self._admin, install, self.home, self.targets)
        set_environment(monkeypatch, install, self.home, self.targets)
        config = await log_in(self._plane, self._admin, account, self.home)
        for namespace in self.watched:
            await wait_allowed(config, self._primary, namespace)
        harness = OperatorHarness(
            self.operator, config, admin=self._plane.config, leader_elect=True
        )
        await harness.start()
        return harness


@pytest.mark.parametrize("mode", [*_MODES, _ALL])
async def test_objects_are_reconciled_in_the_namespaces_of_the_group(
    plane: ControlPlane,
    admin: Client,
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    installation = Installation(plane, admin, "podset", mode)
    harness = await installation.start(monkeypatch, tmp_path)
    for namespace in installation.watched:
        await admin.create(PODSET, build_object(PODSET, "web", namespace, spec={"replicas": 2}))

    async def has_pods() -> bool:
        pods = [(await admin.list(POD, namespace)).items for namespace in installation.watched]
        return all(len(each) == 2 for each in pods)

    await harness.eventually(has_pods, "each set has its pods")
    assert (await admin.get(LEASE, Key(installation.home, "podset")))["spec"]["holderIdentity"]
    await harness.stop()
    await harness.client.close()


@pytest.mark.parametrize("mode", ["multi", _ALL])
@pytest.mark.parametrize("operator_id", [each for each in OPERATORS if each != "podset"])
async def test_every_operator_leads_and_fills_its_caches(
    plane: ControlPlane,
    admin: Client,
    operator_id: str,
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    installation = Installation(plane, admin, operator_id, mode)
    harness = await installation.start(monkeypatch, tmp_path)

    assert (await admin.get(LEASE, Key(installation.home, operator_id)))["spec"]["holderIdentity"]
    assert not harness.exits
    await harness.stop()
    await harness.client.close()

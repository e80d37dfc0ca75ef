"""Stage: a real API server with all operators, installed as the pages say, and their users."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lab.sweep.cluster import request_token
from lab.sweep.workload import load_workloads
from libs.common import fastyaml
from libs.common.client import Client
from libs.common.errors import ApiError, Forbidden, Invalid
from libs.common.kinds import (
    CLUSTER_ROLE,
    LEASE,
    NAMESPACE,
    POD,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Key,
    Kind,
    Manifest,
    build_object,
)
from libs.common.reading import condition_at, text_at
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.helm import CHARTS, find_charts, render_chart, run_helm, with_registry
from libs.common.testing.processes import stop_process
from libs.common.testing.serving import serve
from libs.contracts.compute import INSTANCE_SIZE
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.network.api.v1alpha1 import PROVIDER_NETWORK

HOME: Final = "slipway-system"
"""Namespace of the operators."""
TENANT, NEIGHBOR, PEOPLE = "team-a", "team-b", "people"
EDITOR, ADMIN, VICTIM, INSIDER, ROOT = "mallory", "alice", "victor", "eve", "root"
"""Users: editor and administrator of the tenant's namespace, editor of the neighbor's, editor of
the operators' namespace, administrator of the cluster."""
GUARDING: Final = "ipam"
"""The operator whose chart has a policy for the Services of all."""
EVERYBODY: Final[Manifest] = {}
NEIGHBOR_ONLY: Final[Manifest] = {"matchLabels": {"kubernetes.io/metadata.name": NEIGHBOR}}
"""Selectors of namespaces."""
POOL_BLOCK: Final = "203.0.113.0/28"
FULL: Final[Mapping[str, Any]] = {"watch": {"namespaces": [TENANT, NEIGHBOR]}}
"""Values of the pages: operators watch the namespaces of tenants by name."""
VALUES: Final[Mapping[str, Mapping[str, Any]]] = {"ipam": {"watch": {"clusterWide": True}}}
"""Operators whose page has other values: howto/addresses.md."""
_CONTROLLERS: Final = "clusterrole-aggregation-controller,garbage-collector-controller"
_LAST_GUARD: Final = 300.0
"""Seconds after which a wait counts as hung; nothing is decided by it."""
_POLL: Final = 0.1
_GRACE: Final = 60.0


@dataclass
class Stage:
    """What an attempt finds.

    Attributes:
        plane: The control plane.
        clients: A client for each user and, as `operator:ID`, for the account of each operator.
        processes: The running operators by id.
        logs: Where each of them writes its log.
    """

    plane: ControlPlane
    clients: dict[str, Client]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    logs: dict[str, Path] = field(default_factory=dict)

    def client(self, who: str) -> Client:
        """Return the client of a user or an operator."""
        return self.clients[who]

    async def wait_condition(
        self, kind: Kind, key: Key, type_: str, *reasons: str, user: str = ROOT
    ) -> str:
        """Wait until a condition has one of the reasons; return `Type=Status: Reason`."""
        seen = ""
        try:
            async with asyncio.timeout(_LAST_GUARD):
                while True:
                    found = condition_at(await self.client(user).get(kind, key), type_)
                    reason = text_at(found, "reason")
                    seen = f"{type_}={text_at(found, 'status')}: {reason}"
                    if reason in reasons:
                        return seen
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            raise AssertionError(f"{kind.kind} {key} stays at {seen}, not {reasons}") from None

    async def wait_until(self, probe: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until a probe returns true."""
        try:
            async with asyncio.timeout(_LAST_GUARD):
                while not await probe():
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            raise AssertionError(f"never happened: {what}") from None


@asynccontextmanager
async def open_stage(folder: Path) -> AsyncIterator[Stage]:
    """Install everything, start the operators, and stop them at the end."""
    with ExitStack() as running:
        plane = running.enter_context(ControlPlane())
        plane.start_controller_manager(f"--controllers={_CONTROLLERS}")
        async with AsyncExitStack() as stack:
            root = await stack.enter_async_context(Client(plane.config, user_agent=ROOT))
            stage = Stage(plane, {ROOT: root})
            await _install(stage, folder)
            await _add_people(stage, stack)
            await _add_objects(root)
            await _start(stage, stack, running, folder)
            await _wait_ready(stage)
            yield stage


async def _install(stage: Stage, folder: Path) -> None:
    """Create the namespaces and install all charts with Helm, and stand-ins of foreign kinds."""
    root = stage.client(ROOT)
    for name in (HOME, PEOPLE, TENANT, NEIGHBOR):
        standard = {} if name == HOME else {"pod-security.kubernetes.io/enforce": "baseline"}
        await root.create(NAMESPACE, build_object(NAMESPACE, name, metadata={"labels": standard}))
    await serve(root, *_list_foreign_kinds())
    kubeconfig = str(stage.plane.write_kubeconfig(folder / "kubeconfig"))
    await asyncio.to_thread(_install_chart, GUARDING, kubeconfig)
    await _add_pools(root)
    await stage.wait_until(lambda: _is_guarded(root), "the policy for Services is in force")
    for operator in find_charts():
        if operator != GUARDING:
            await asyncio.to_thread(_install_chart, operator, kubeconfig)


async def _is_guarded(root: Client) -> bool:
    """Return whether the API server has read the pools, before which it refuses all Services."""
    labels = {"app.kubernetes.io/managed-by": GUARDING}
    service = build_object(
        SERVICE, "probe", HOME, metadata={"labels": labels}, spec={"ports": [{"port": 80}]}
    )
    try:
        await root.create(SERVICE, service, dry_run=True)
    except (Forbidden, Invalid) as err:
        return "only IPClaims have Services" in str(err)
    return False


def _list_foreign_kinds() -> list[Manifest]:
    """Return CRDs of kinds that no chart of ours installs, such as those of KubeVirt."""
    ours = {path.stem.replace("_", ".", 1): path for path in CHARTS.glob("*/files/crds/*.yaml")}
    named = {fastyaml.load(path.read_text())["metadata"]["name"] for path in ours.values()}
    found = {
        crd["metadata"]["name"]: crd
        for operator in find_charts()
        for workload in load_workloads(operator)
        for crd in workload.crds
    }
    return [crd for name, crd in found.items() if name not in named]


def values_of(operator: str) -> dict[str, Any]:
    """Return the values with which the pages install an operator, with its roles for users."""
    return {**(VALUES.get(operator) or FULL), "rbac": {"userRoles": True}}


def _install_chart(operator: str, kubeconfig: str) -> None:
    run_helm(
        *("install", operator, str(CHARTS / operator), "--namespace", HOME),
        *("--kubeconfig", kubeconfig, "--values", "-"),
        stdin=json.dumps(with_registry(values_of(operator))),
    )


async def _add_people(stage: Stage, stack: AsyncExitStack) -> None:
    """Create users with the built-in roles, with tokens of their own."""
    root = stage.client(ROOT)
    for user, role, namespace in (
        (EDITOR, "edit", TENANT),
        (ADMIN, "admin", TENANT),
        (VICTIM, "edit", NEIGHBOR),
        (INSIDER, "edit", HOME),
    ):
        await root.create(SERVICE_ACCOUNT, build_object(SERVICE_ACCOUNT, user, PEOPLE))
        await bind(root, user, role, namespace)
        stage.clients[user] = await _log_in(stage, stack, user, PEOPLE)


async def bind(root: Client, user: str, role: str, namespace: str) -> None:
    """Bind a ClusterRole to a user in a namespace."""
    subject = {"kind": "ServiceAccount", "name": user, "namespace": PEOPLE}
    reference = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": role}
    binding = build_object(ROLE_BINDING, f"{user}-{role}", namespace)
    await root.create(ROLE_BINDING, binding | {"subjects": [subject], "roleRef": reference})


async def _log_in(stage: Stage, stack: AsyncExitStack, account: str, namespace: str) -> Client:
    token = await request_token(stage.client(ROOT), namespace, account)
    client = Client(stage.plane.config_for(token), user_agent=account)
    return await stack.enter_async_context(client)


async def _add_pools(root: Client) -> None:
    """Create the pools of addresses, one of them for the neighbor only."""
    await _create(
        root,
        IP_POOL,
        "public",
        {
            "family": "IPv4",
            "addresses": [POOL_BLOCK],
            "allowedNamespaces": EVERYBODY,
        },
    )
    for name, block, extra in (
        ("small", "203.0.113.64/28", {"quotaPerNamespace": 1}),
        ("open", "203.0.113.128/28", {"addressTargets": "Allow"}),
    ):
        spec = {"family": "IPv4", "addresses": [block], "allowedNamespaces": EVERYBODY, **extra}
        await _create(root, IP_POOL, name, spec)
    spec = {"family": "IPv4", "addresses": ["198.51.100.0/28"], "allowedNamespaces": NEIGHBOR_ONLY}
    await _create(root, IP_POOL, "private", spec)


async def _add_objects(root: Client) -> None:
    """Create what else an administrator offers to tenants, and what attackers aim at."""
    await _create(root, INSTANCE_SIZE, "small", {"cpus": 1, "memory": "1Gi", "disk": "1Gi"})
    vlans = [{"first": 100, "last": 199}]
    for name, allowed in (("fabric", EVERYBODY), ("backbone", NEIGHBOR_ONLY)):
        spec = {"bridge": f"br-{name}", "vlans": vlans, "allowedNamespaces": allowed}
        await _create(root, PROVIDER_NETWORK, name, spec)
    secret = build_object(SECRET, "webhook-key", HOME)
    await root.create(SECRET, {**secret, "stringData": {"tls.key": "planted"}})
    pod = build_object(POD, "operator", HOME, spec={"containers": [{"name": "a", "image": "b"}]})
    await root.create(POD, pod)


async def _create(client: Client, kind: Kind, name: str, spec: Mapping[str, Any]) -> None:
    await client.create(kind, build_object(kind, name, spec=dict(spec)))


async def _start(stage: Stage, stack: AsyncExitStack, running: ExitStack, folder: Path) -> None:
    """Start each operator as its Deployment does, with the token of its account."""
    for operator in find_charts():
        stage.clients[f"operator:{operator}"] = await _log_in(stage, stack, operator, HOME)
        token = await request_token(stage.client(ROOT), HOME, operator)
        path = folder / f"{operator}.kubeconfig"
        kubeconfig = stage.plane.write_kubeconfig(path, token, HOME)
        stage.logs[operator] = folder / f"{operator}.log"
        with stage.logs[operator].open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", f"operators.{operator}"],
                env={**os.environ, **_build_environment(operator, kubeconfig)},
                stdout=output,
                stderr=output,
            )
        running.callback(stop_process, process, _GRACE)
        stage.processes[operator] = process


def _build_environment(operator: str, kubeconfig: Path) -> dict[str, str]:
    (deployment,) = render_chart(
        operator, values_of(operator), namespace=HOME, show_only=("Deployment",)
    )
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    prefix = operator.upper()
    return {
        **{entry["name"]: entry["value"] for entry in container["env"] if "value" in entry},
        "POD_NAME": f"{operator}-0",
        "POD_NAMESPACE": HOME,
        f"{prefix}_KUBECONFIG": str(kubeconfig),
        f"{prefix}_METRICS_BIND_ADDRESS": "0",
        f"{prefix}_HEALTH_PROBE_BIND_ADDRESS": "0",
    }


async def _wait_ready(stage: Stage) -> None:
    """Wait until every operator leads and the built-in roles include the kinds of the charts."""
    root = stage.client(ROOT)

    async def leads(operator: str) -> bool:
        stage_of = stage.processes[operator]
        assert stage_of.poll() is None, stage.logs[operator].read_text()[-3000:]
        spec = (await root.get(LEASE, Key(HOME, operator))).get("spec") or {}
        return str(spec.get("holderIdentity") or "").startswith(operator)

    async def aggregated() -> bool:
        rules = (await root.get(CLUSTER_ROLE, Key("", "edit"))).get("rules") or ()
        return any("kubernetesclusters" in (rule.get("resources") or ()) for rule in rules)

    for operator in stage.processes:
        await stage.wait_until(lambda each=operator: leads(each), f"{operator} leads")  # type: ignore[misc]
    await stage.wait_until(aggregated, "the role edit includes our kinds")


async def outcome_of(request: Awaitable[object]) -> str:
    """Say what the API server answered, in the words of the page."""
    try:
        await request
    except ApiError as err:
        return _classify(err)
    return SUCCEEDS


SUCCEEDS: Final = "succeeds"
RBAC: Final = "Forbidden by RBAC"
POLICY: Final = "refused by the admission policy of ipam"
STANDARD: Final = "refused by Pod Security admission"
ESCALATION: Final = "refused by RBAC: nobody can grant what they lack"
VALIDATION: Final = "refused by validation"
STRANGER: Final = "401 Unauthorized"
_ANSWERS: Final = (
    (403, "ValidatingAdmissionPolicy", POLICY),
    (403, "violates PodSecurity", STANDARD),
    (403, "not currently held", ESCALATION),
    (403, "cannot", RBAC),
    (422, "ValidatingAdmissionPolicy", POLICY),
    (422, "", VALIDATION),
    (401, "", STRANGER),
    # Permissions are checked first; who gets this far may do it.
    (404, '" not found', SUCCEEDS),
    # The pod has no node; who gets this far may run commands.
    (400, "does not have a host assigned", SUCCEEDS),
)


def _classify(err: ApiError) -> str:
    for status, words, outcome in _ANSWERS:
        if err.status == status and words in err.message:
            return outcome
    return f"{err.status} {err.message}"

"""The real API server of a sweep, with the CRDs and the permissions of the operator."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from lab.sweep.workload import AWAY, Workload, load_workloads
from libs.common.client import Client
from libs.common.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    NotFound,
)
from libs.common.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    CRD,
    NAMESPACE,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Kind,
    Manifest,
    build_object,
    key_of,
    uid_of,
)
from libs.common.naming import short_hash
from libs.common.rbac import (
    READ_VERBS,
    PolicyRule,
    build_cluster_role,
    build_role,
    event_rules,
    operator_namespace_rules,
)
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.serving import wait_served

_RBAC: Final = "rbac.authorization.k8s.io"
_POLL: Final = 0.02
_MADE_OF: Final = "sweep.slipway.dev/made-of"
"""Annotation on a CRD: hash of its source."""
_APISERVER_ARGS: Final = ("--enable-admission-plugins=OwnerReferencesPermissionEnforcement",)
"""Owner references that block a deletion require a permission, as on strict clusters."""
_TOKEN_SECONDS: Final = 24 * 3600
_SERVED_SECONDS: Final = 180
_OWNER_SECONDS: Final = 180.0


type Right = tuple[str, str, str]
"""Group, resource with its subresource, and verb."""


class Permissions:
    """The permissions of the service account of an operator, namespace by namespace.

    Args:
        client: Connection with all rights.
        control_plane: The API server.
        workload: A workload of the operator; all its workloads have the same permissions.
    """

    def __init__(self, client: Client, control_plane: ControlPlane, workload: Workload) -> None:
        """Compute the rules; `prepare` creates the account."""
        self._client = client
        self._control_plane = control_plane
        self._operator = workload.operator.id
        self._home = f"sweep-{self._operator}"
        self._probe = workload.primary
        workloads = load_workloads(workload.operator.id)
        self._kinds = tuple(dict.fromkeys(kind for each in workloads for kind in each.kinds))
        self.rules: tuple[PolicyRule, ...] = (
            *workload.rules,
            *operator_namespace_rules(self._operator),
        )
        self._token = ""

    async def prepare(self) -> None:
        """Create the service account, its cluster-scoped permissions and a token."""
        client, name = self._client, self._operator
        await create_namespace(client, self._home)
        account = build_object(SERVICE_ACCOUNT, name, self._home)
        await client.create(SERVICE_ACCOUNT, account)
        rules = [rule for rule in self.rules if rule.cluster_scoped]
        if any(not kind.namespaced for kind in self._kinds):
            # As in the chart: Events about cluster-scoped objects go to the namespace default.
            rules += event_rules()
        if rules:
            await client.create(CLUSTER_ROLE, build_cluster_role(self._home, rules))
            binding = self._build_binding(CLUSTER_ROLE_BINDING, CLUSTER_ROLE)
            await client.create(CLUSTER_ROLE_BINDING, binding)
        self._token = await request_token(client, self._home, name)

    async def grant(self, namespace: str) -> str:
        """Create a namespace in which the account has the permissions of an operator.

        Returns:
            A token of the account.
        """
        await create_namespace(self._client, namespace)
        rules = [rule for rule in self.rules if not rule.cluster_scoped]
        await self._client.create(ROLE, build_role(self._home, namespace, rules))
        binding = self._build_binding(ROLE_BINDING, ROLE)
        binding["metadata"]["namespace"] = namespace
        await self._client.create(ROLE_BINDING, binding)
        config = self._control_plane.config_for(self._token)
        async with Client(config) as probe:
            while True:  # The authorizer hears of it a moment later.
                with contextlib.suppress(Forbidden):
                    await probe.list(self._probe, namespace)
                    return self._token
                await asyncio.sleep(_POLL)

    def find_unused(self, used: set[Right]) -> list[str]:
        """Return unused permissions, as `verb resource`."""
        return find_unused_rights(self.rules, self._kinds, used)

    def _build_binding(self, kind: Kind, role: Kind) -> Manifest:
        return build_object(
            kind,
            self._home,
            roleRef={"apiGroup": _RBAC, "kind": role.kind, "name": self._home},
            subjects=[{"kind": "ServiceAccount", "name": self._operator, "namespace": self._home}],
        )


_MARKS: Final = ("announce",)
"""Verbs that no request has: an admission policy asks who holds them."""


def find_unused_rights(
    rules: Sequence[PolicyRule], kinds: Sequence[Kind], used: set[Right]
) -> list[str]:
    """Return unused permissions, as `verb resource`, except permissions on Leases and Events.

    All permissions to read a resource count as one: a client that can list objects learns nothing
    more by reading one object or a subresource such as its status.
    """
    names = {kind.plural: kind.kind for kind in kinds}
    granted = {
        _join_reads(group, _name_owner(resource, names), verb)
        for rule in rules
        for group in rule.api_groups
        for resource in rule.resources
        for verb in rule.verbs
        if resource not in ("leases", "events") and verb not in _MARKS
    }
    taken = {_join_reads(*right) for right in used}
    return sorted(f"{verb} {resource}" for _, resource, verb in granted - taken)


def _name_owner(resource: str, names: Mapping[str, str]) -> str:
    """Return the resource of an owner reference, which names the kind."""
    plural, _, part = resource.partition("/")
    return f"{names.get(plural, plural)}/{part}" if part == "finalizers" else resource


def _join_reads(group: str, resource: str, verb: str) -> Right:
    if verb in READ_VERBS:
        return group, resource.partition("/")[0], "read"
    return group, resource, verb


async def request_token(client: Client, namespace: str, name: str) -> str:
    """Return a token of a service account."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    response = await client.raw("POST", SERVICE_ACCOUNT.path(namespace, name, "token"), request)
    return str(response["status"]["token"])


async def create_namespace(client: Client, name: str) -> None:
    """Create a namespace unless it exists."""
    with contextlib.suppress(AlreadyExists):
        manifest = build_object(NAMESPACE, name)
        await client.create(NAMESPACE, manifest)


@asynccontextmanager
async def run_control_plane() -> AsyncIterator[ControlPlane]:
    """Run a separate API server without blocking other tasks."""
    control_plane = ControlPlane(apiserver_args=_APISERVER_ARGS)
    try:
        await asyncio.to_thread(control_plane.start)
        yield control_plane
    finally:
        control_plane.stop()


@asynccontextmanager
async def prepare_cluster(
    control_plane: ControlPlane, workloads: Sequence[Workload]
) -> AsyncIterator[Client]:
    """Install the CRDs and objects that workloads need; yield a client with all permissions."""
    async with Client(control_plane.config, max_in_flight=64) as client:
        await install_crds(client, workloads, renew=True)
        for workload in workloads:
            for kind, manifest in workload.initial_objects:
                with contextlib.suppress(AlreadyExists):
                    await client.create(kind, manifest)
        yield client


async def install_crds(
    client: Client, workloads: Sequence[Workload], *, renew: bool = False
) -> None:
    """Install the CRDs of workloads and wait until their objects can be owners.

    Args:
        client: Connection with all rights.
        workloads: Workloads whose CRDs are installed.
        renew: Whether to replace a different CRD with the same name: for other operators, a
            permissive CRD stands for a kind that one operator defines.
    """
    crds = {crd["metadata"]["name"]: crd for each in workloads for crd in each.crds}
    async with asyncio.timeout(_SERVED_SECONDS):
        for crd in crds.values():
            await _install(client, crd, renew=renew)
        for kind in dict.fromkeys(kind for workload in workloads for kind in workload.kinds):
            await wait_served(client, kind)
    await wait_owners(client, list_owners(workloads))


def list_owners(workloads: Sequence[Workload]) -> list[Kind]:
    """List the kinds whose objects own children."""
    return list(dict.fromkeys(workload.primary for workload in workloads))


async def wait_owners(client: Client, kinds: Sequence[Kind]) -> None:
    """Wait until objects of some kinds can be owners.

    Admission looks up the kind of an owner by discovery and caches the result for 30 seconds. An
    API server that is asked too early knows only built-in kinds during this time.

    Raises:
        TimeoutError: They still cannot be owners after a minute.
    """
    async with asyncio.timeout(_OWNER_SECONDS):
        for kind in kinds:
            await _wait_discovered(client, kind)
            await _wait_owner(client, kind)


async def _wait_discovered(client: Client, kind: Kind) -> None:
    while True:
        with contextlib.suppress(Forbidden, *AWAY):
            if await client.serves(kind):
                return
        await asyncio.sleep(_POLL)


async def _install(client: Client, crd: Manifest, *, renew: bool) -> None:
    text = json.dumps(crd, sort_keys=True)
    annotations = {**(crd["metadata"].get("annotations") or {}), _MADE_OF: short_hash(text)}
    wanted = {**crd, "metadata": {**crd["metadata"], "annotations": annotations}}
    while True:
        try:
            await client.create(CRD, wanted)
            return
        except AlreadyExists:
            pass
        with contextlib.suppress(NotFound, Conflict):
            live = await client.get(CRD, key_of(crd))
            if not renew or (live["metadata"].get("annotations") or {}).get(_MADE_OF) == (
                annotations[_MADE_OF]
            ):
                return
            await client.delete(CRD, key_of(crd), uid=uid_of(live))
        await asyncio.sleep(_POLL)


async def _wait_owner(client: Client, kind: Kind) -> None:
    """Wait until admission knows a kind of owners; it refreshes the served kinds periodically."""
    owner = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": "probe",
        "uid": "11111111-1111-4111-8111-111111111111",
        "blockOwnerDeletion": True,
    }
    probe = build_object(CONFIG_MAP, "probe", "default", metadata={"ownerReferences": [owner]})
    while True:
        with contextlib.suppress(Forbidden, NotFound, *AWAY):
            await client.create(CONFIG_MAP, probe, dry_run=True)
            return
        await asyncio.sleep(_POLL)

"""The cluster of a sweep: a real control plane with the CRDs and the manifests of an operator."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.sweep.anyop.phases import Kinds, Phase, load_phases, read_manifests
from lab.sweep.anyop.starter import Command
from lab.sweep.cluster import create_namespace, request_token, run_control_plane
from lab.sweep.progress_clock import Meter
from lab.sweep.proxy import FaultProxy
from lab.sweep.recorder import Recorder
from libs.common.client import Client
from libs.common.errors import AlreadyExists, SlipwayError
from libs.common.kinds import CRD, ROLE, ROLE_BINDING, SERVICE_ACCOUNT, Kind, Manifest
from libs.common.testing.apiserver import AssetsMissing, ControlPlane, find_assets
from libs.common.testing.serving import kinds_of, wait_served
from tools.cluster.errors import UsageError

_CONTROLLERS: Final = "garbage-collector-controller"
_LEFT_OUT: Final = frozenset({"Namespace", "Deployment", "CustomResourceDefinition"})
"""Kinds in the manifests of an operator that a sweep provides in another way."""
_UNWATCHED: Final = frozenset(
    {"events", "leases", "endpoints", "endpointslices", "bindings", "serviceaccounts"}
)
_SERVED_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a sweep is about.

    Attributes:
        crds: Files or folders with CRDs.
        manifests: Files or folders with the account, the roles and other needs of the operator.
        workload: Folder of the phases, or samples.
        command: Command that starts the operator.
        controllers: Further controllers of kube-controller-manager.
        quiet: Seconds without a change after which an undisturbed operator has finished.
        patience: Seconds after which a disturbed operator must have recovered.
        ignored: Patterns of fields that are not compared.
    """

    crds: Sequence[Path]
    manifests: Sequence[Path]
    workload: Path
    command: Sequence[str]
    controllers: Sequence[str] = ()
    quiet: float = 3.0
    patience: float = 75.0
    ignored: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Bench:
    """The objects that all trials share."""

    inputs: Inputs
    control_plane: ControlPlane
    client: Client
    proxy: FaultProxy
    recorder: Recorder
    kinds: Kinds
    phases: tuple[Phase, ...]
    command: Command
    account: Account
    meter: Meter


@dataclass(frozen=True, slots=True)
class Account:
    """The account of an operator.

    Attributes:
        token: Its token.
        roles: Roles and bindings, which each trial gets in its namespace.
    """

    token: str
    roles: tuple[tuple[Kind, Manifest], ...] = ()

    async def grant(self, client: Client, namespace: str) -> None:
        """Create the namespace of a trial with the roles."""
        await create_namespace(client, namespace)
        for kind, manifest in self.roles:
            metadata = {"name": manifest["metadata"]["name"], "namespace": namespace}
            with contextlib.suppress(AlreadyExists):
                await client.create(kind, {**manifest, "metadata": metadata})


@asynccontextmanager
async def open_bench(inputs: Inputs, folder: Path) -> AsyncIterator[Bench]:
    """Start a control plane with everything that the trials need."""
    phases = load_phases(inputs.workload)
    crds = _read_crds(inputs.crds)
    _check_assets()
    async with run_control_plane() as control_plane:
        config = control_plane.config
        admin = (await config.authorization()).removeprefix("Bearer ")
        async with (
            Client(config, max_in_flight=64) as client,
            FaultProxy(config.server, config.ssl_context(), admin) as proxy,
        ):
            await _install(client, crds)
            _start_controllers(control_plane, inputs.controllers)
            kinds = Kinds(await _discover(client))
            for step in (step for phase in phases for step in phase.steps):
                for manifest in step.manifests:
                    kinds.of(manifest)
            account = await _apply(client, kinds, inputs.manifests, admin)
            watched = [kind for kind in kinds.all if kind.namespaced]
            recorder = Recorder(client, [k for k in watched if k.plural not in _UNWATCHED])
            recorder.tolerant = True
            await recorder.start()
            command = Command(inputs.command, folder)
            try:
                yield Bench(
                    *(inputs, control_plane, client, proxy, recorder, kinds, phases, command),
                    *(account, Meter()),
                )
            finally:
                await recorder.stop()


def _read_crds(places: Iterable[Path]) -> list[Manifest]:
    """Read CRDs, without webhooks for conversion, which nobody serves here."""
    crds = []
    for manifest in (each for place in places for each in read_manifests(place)):
        if manifest.get("kind") != "CustomResourceDefinition":
            continue
        manifest["spec"].pop("conversion", None)
        crds.append(manifest)
    if not crds:
        raise UsageError(f"{', '.join(map(str, places)) or '--crds'} contains no CRD")
    return crds


async def _install(client: Client, crds: Sequence[Manifest]) -> None:
    async with asyncio.timeout(_SERVED_SECONDS):
        for crd in crds:
            await client.create(CRD, crd)
        for crd in crds:
            for kind in kinds_of(crd):
                await wait_served(client, kind)
                while not await client.serves(kind):  # Discovery lags behind.
                    await asyncio.sleep(0.1)


def _check_assets() -> None:
    try:
        folder = find_assets()
    except AssetsMissing as err:
        raise UsageError(str(err)) from err
    if not (folder / "kube-controller-manager").exists():
        raise UsageError(f"{folder} contains no kube-controller-manager, which collects garbage")


def _start_controllers(control_plane: ControlPlane, controllers: Sequence[str]) -> None:
    names = ",".join((_CONTROLLERS, *controllers))
    control_plane.start_controller_manager(f"--controllers={names}", "--concurrent-gc-syncs=4")


async def _discover(client: Client) -> list[Kind]:
    """List the kinds that can be listed and watched, each in one version: preferred ones first."""
    groups = (await client.raw("GET", "/apis"))["groups"]
    preferred = [group["preferredVersion"]["groupVersion"] for group in groups]
    others = [each["groupVersion"] for group in groups for each in group["versions"]]
    kinds: dict[tuple[str, str], Kind] = {}
    for version in dict.fromkeys(["v1", *preferred, *others]):
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for each in (await client.raw("GET", base))["resources"]:
            if "/" in each["name"] or not {"list", "watch"} <= set(each["verbs"]):
                continue
            kind = Kind.of(version, each["kind"], each["name"], namespaced=each["namespaced"])
            kinds.setdefault((kind.group, kind.kind), kind)
    return list(kinds.values())


async def _apply(client: Client, kinds: Kinds, places: Iterable[Path], admin: str) -> Account:
    """Apply the manifests of the operator; return its account, or one with all rights."""
    accounts, roles = [], []
    for manifest in (each for place in places for each in read_manifests(place)):
        if manifest["kind"] in _LEFT_OUT or manifest["kind"].endswith("WebhookConfiguration"):
            print(f"Left out: {manifest['kind']} {manifest['metadata']['name']}")
            continue
        kind = kinds.of(manifest)
        namespace = manifest["metadata"].setdefault("namespace", "default")
        if kind.namespaced:
            await create_namespace(client, namespace)
        else:
            del manifest["metadata"]["namespace"]
        try:
            await client.create(kind, manifest)
        except AlreadyExists:
            pass
        except SlipwayError as err:
            raise UsageError(f"Cannot create {kind} {manifest['metadata']['name']}: {err}") from err
        if kind.kind == SERVICE_ACCOUNT.kind:
            accounts.append(manifest)
        if kind.kind in (ROLE.kind, ROLE_BINDING.kind):
            roles.append((kind, manifest))
    if len(accounts) != 1:
        print("The operator has all rights: --manifests does not contain exactly one account")
        return Account(admin)
    metadata = accounts[0]["metadata"]
    token = await request_token(client, metadata["namespace"], metadata["name"])
    return Account(token, tuple(roles))

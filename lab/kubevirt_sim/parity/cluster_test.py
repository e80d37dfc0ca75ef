"""Cases that need more of a cluster: two nodes, or the webhooks of a real API server."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Final

import pytest

from lab.kubevirt_sim.parity.site import Site, build_machine
from lab.kubevirt_sim.registration import WEBHOOKS
from libs.common.errors import SlipwayError
from libs.common.kinds import (
    NAMESPACE,
    POD,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Key,
    Manifest,
    build_object,
    key_of,
    uid_of,
)
from libs.common.reading import holds_at, map_at, maps_at, text_at, text_map_at
from libs.common.testing.fakeapi.rest import Reply, RestClient
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)

_MIGRATION: Final = VIRTUAL_MACHINE_INSTANCE_MIGRATION
_CLONER: Final = "cloner"


async def start_movable(site: Site, strategy: str = "LiveMigrate") -> Manifest:
    """Start a machine without disks, which can move; returns its instance."""
    vm = build_machine(site.namespace)
    vm["spec"]["template"]["spec"]["evictionStrategy"] = strategy
    await site.client.create(VIRTUAL_MACHINE, vm)
    await site.until_running()

    async def movable() -> Manifest | None:
        vmi = await site.instance()
        return vmi if holds_at(vmi, "LiveMigratable") else None

    return await site.until(movable, "the machine can be moved")


async def until_moved(site: Site, before: Manifest) -> Manifest:
    """Wait until the instance is on another node; returns it."""

    async def moved() -> Manifest | None:
        vmi = await site.instance()
        away = text_at(vmi, "status", "nodeName") != text_at(before, "status", "nodeName")
        state = map_at(vmi, "status", "migrationState")
        return vmi if away and state.get("completed") else None

    return await site.until(moved, "the instance is on another node")


async def test_migration_moves_the_instance_and_does_not_restart_it(site: Site) -> None:
    """The same instance runs on another node, in another pod; the migration has succeeded."""
    await site.require_nodes(2)
    before = await start_movable(site)
    migration = build_object(_MIGRATION, "move", site.namespace, spec={"vmiName": "web"})
    await site.client.create(_MIGRATION, migration)
    after = await until_moved(site, before)

    assert uid_of(after) == uid_of(before)
    node = text_at(after, "status", "nodeName")
    assert text_map_at(after, "metadata", "labels")["kubevirt.io/nodeName"] == node
    state = map_at(after, "status", "migrationState")
    assert state["sourceNode"] == text_at(before, "status", "nodeName")
    assert state["targetNode"] == node and not state.get("failed")

    async def succeeded() -> bool:
        held = await site.client.get(_MIGRATION, Key(site.namespace, "move"))
        return text_at(held, "status", "phase") == "Succeeded"

    await site.until(succeeded, "the migration has succeeded")

    async def readdressed() -> bool:
        [interface] = maps_at(await site.instance(), "status", "interfaces")
        pods = (await site.client.list(POD, site.namespace)).items
        target = [each for each in pods if text_at(each, "spec", "nodeName") == node]
        addresses = [text_at(each, "status", "podIP") for each in target]
        return [interface.get("ipAddress")] == addresses

    await site.until(readdressed, "the address of the instance is the address of its new pod")


async def test_eviction_moves_the_instance(site: Site) -> None:
    """An eviction is refused with 429, and the instance leaves its node."""
    await site.require_nodes(2)
    before = await start_movable(site)
    [pod] = (await site.client.list(POD, site.namespace)).items
    metadata = {"name": pod["metadata"]["name"], "namespace": site.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = POD.path(site.namespace, metadata["name"], "eviction")
    reply = await send(site, path, eviction)
    assert reply.status == 429, reply
    assert "Eviction triggered evacuation of VMI" in text_at(reply.body, "message")

    after = await until_moved(site, before)
    assert uid_of(after) == uid_of(before)
    migrations = (await site.client.list(_MIGRATION, site.namespace)).items
    assert [key_of(each).name.startswith("kubevirt-evacuation-") for each in migrations] == [True]


@pytest.mark.apiserver
async def test_webhooks_fail_closed_and_only_for_launchers(site_with_webhooks: Site) -> None:
    """While KubeVirt or CDI is down nobody changes machines and disks; other pods are evicted."""
    site = site_with_webhooks
    found: dict[str, set[str]] = {}
    evictions: list[str] = []
    for configuration in (await site.client.list(WEBHOOKS)).items:
        for webhook in maps_at(configuration, "webhooks"):
            for rule in maps_at(webhook, "rules"):
                for resource in rule.get("resources") or ():
                    group = (rule.get("apiGroups") or [""])[0]
                    found.setdefault(f"{resource}/{group}", set()).add(webhook["failurePolicy"])
                    if resource == "pods/eviction":
                        conditions = maps_at(webhook, "matchConditions")
                        evictions += [text_at(each, "expression") for each in conditions]
    assert found["virtualmachines/kubevirt.io"] == {"Fail"}
    assert found["virtualmachineinstancemigrations/kubevirt.io"] == {"Fail"}
    assert found["datavolumes/cdi.kubevirt.io"] == {"Fail"}
    assert found["pods/eviction/"] == {"Fail"}
    # The real one has another webhook, for the pods of volumes that are plugged in.
    assert 'object.metadata.name.startsWith("virt-launcher")' in evictions


@pytest.mark.apiserver
async def test_clone_needs_a_right_in_the_namespace_of_its_source(site_with_webhooks: Site) -> None:
    """Cloning from another namespace requires the permission `datavolumes/source` there."""
    site = site_with_webhooks
    source = f"{site.namespace}-from"
    made = await site.client.create(NAMESPACE, build_object(NAMESPACE, source))
    try:
        await site.client.create(
            SERVICE_ACCOUNT, build_object(SERVICE_ACCOUNT, _CLONER, site.namespace)
        )
        await allow(site, site.namespace, "datavolumes")
        token = await create_token(site)
        pvc = {"pvc": {"namespace": source, "name": "image"}}
        storage = {"resources": {"requests": {"storage": "64Mi"}}, "accessModes": ["ReadWriteOnce"]}
        spec = {"source": pvc, "storage": storage}
        disk = build_object(DATA_VOLUME, "root", site.namespace, spec=spec)
        path = DATA_VOLUME.path(site.namespace)

        async def messages() -> str:
            # Rights take a moment to be known; before that the reply is 403 from the API server.
            reply = await send(site, path, disk, token=token)
            return "" if reply.status == 403 else f"{reply.status} {reply.body.get('message')}"

        text = f"has insufficient permissions in clone source namespace {source}"
        refusal = await site.until(messages, "the clone is refused by the webhook")
        assert text in refusal, refusal

        await allow(site, source, "datavolumes/source")

        async def accepted() -> bool:
            return (await send(site, path, disk, token=token)).status == 201

        await site.until(accepted, "the clone is accepted")
    finally:
        with contextlib.suppress(SlipwayError):
            await site.client.delete(NAMESPACE, Key("", source), uid=uid_of(made))


async def send(site: Site, path: str, body: Manifest, *, token: str = "") -> Reply:
    """Post something as the user of the site, or with a token; hides no response."""
    config = site.config
    if token:
        # A client certificate would count more than the token.
        config = replace(config, cert_file="", key_file="", find_files=None)
    own = (await config.authorization() or "").removeprefix("Bearer ")
    tls = config.ssl_context() or True
    async with RestClient(config.server, token=token or own, tls=tls) as rest:
        return await rest.send("POST", path, body)


async def create_token(site: Site) -> str:
    """Create a token of the ServiceAccount that clones."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": 3600},
    }
    path = SERVICE_ACCOUNT.path(site.namespace, _CLONER, "token")
    reply = await send(site, path, request)
    assert reply.status == 201, reply
    return text_at(reply.body, "status", "token")


async def allow(site: Site, namespace: str, resource: str) -> None:
    """Allow the ServiceAccount to create a resource of CDI in a namespace."""
    rule = {"apiGroups": [DATA_VOLUME.group], "resources": [resource], "verbs": ["create"]}
    await site.client.create(ROLE, build_object(ROLE, _CLONER, namespace, rules=[rule]))
    binding = build_object(
        ROLE_BINDING,
        _CLONER,
        namespace,
        roleRef={"apiGroup": ROLE.group, "kind": ROLE.kind, "name": _CLONER},
        subjects=[
            {"kind": SERVICE_ACCOUNT.kind, "name": _CLONER, "namespace": site.namespace},
        ],
    )
    await site.client.create(ROLE_BINDING, binding)

"""What the API server refuses, tried on a real one."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.client import Client
from libs.common.crd import lint_crd
from libs.common.errors import Invalid
from libs.common.kinds import Key, Kind, Manifest
from libs.common.testing.serving import serve
from operators.compute.api import RESOURCES
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.api.size import INSTANCE_SIZE
from operators.compute.samples import IMAGE, build_instance, build_operation, build_size

SIZE = Key("", "rules")


@pytest.fixture
async def client(kube_client: Client) -> Client:
    """Install the kinds and wait until they are served."""
    await serve(kube_client, *RESOURCES)
    return kube_client


def test_kinds_follow_the_conventions() -> None:
    assert [str(finding) for model in RESOURCES for finding in lint_crd(model)] == []


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"power": "Stopped", "rootDisk": {"size": "20Gi", "storageClassName": "fast"}},
        {"publicIP": {"mode": "Auto", "poolName": "public"}},
        {"publicIP": {"mode": "Auto", "poolName": "p", "ports": [{"name": "a", "port": 80}]}},
        {"rootDisk": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}},
        {"readinessProbe": {"guestAgentPing": {}, "periodSeconds": 5}},
        {"readinessProbe": {"httpGet": {"port": 80}}, "bootCheck": "GuestAgent"},
        {"publicIP": {"mode": "Claim", "claimName": "web"}, "privateIP": "10.0.0.7"},
        {"image": {"registry": "docker://quay.io/containerdisks/debian:13"}},
        {"image": {"dataSource": {"name": "debian"}}},
        {"volumes": [{"name": "a", "demoVolume": "data"}, {"name": "b", "claim": "logs"}]},
        {"ssh": {"user": "ada", "authorizedKeys": ["ssh-ed25519 AAAA ada"]}},
        {"directives": [{"kind": "Restart", "token": "t", "vmiUID": "u"}]},
        {"size": None, "instancetype": {"name": "u1.small"}, "rootDisk": {"size": "10Gi"}},
        {"preference": {"name": "mine", "kind": "VirtualMachinePreference"}},
        {"directives": [{"kind": "RootDisk", "token": "t", "disk": "d", "use": "Prepare"}]},
    ],
)
async def test_server_takes_what_makes_sense(
    client: Client, kube_namespace: str, spec: dict[str, Any]
) -> None:
    made = await client.create(INSTANCE, build_instance("web", kube_namespace, **spec))

    assert made["spec"]["power"] == spec.get("power", "Running")
    assert made["spec"]["evictionStrategy"] == "LiveMigrateIfPossible"


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"size": None}, "exactly one of size and instancetype"),
        ({"instancetype": {"name": "a"}}, "exactly one of size and instancetype"),
        (
            {"size": None, "instancetype": {"name": "a"}},
            "rootDisk.size is needed with instancetype",
        ),
        (
            {
                "size": None,
                "instancetype": {"name": "a", "kind": "VirtualMachinePreference"},
                "rootDisk": {"size": "10Gi"},
            },
            "spec.instancetype.kind",
        ),
        ({"image": {}}, "exactly one of url, registry, dataSource and snapshot"),
        ({"image": {**IMAGE, "registry": "docker://a/b"}}, "exactly one of url, registry"),
        ({"image": {"url": "file:///etc/passwd"}}, "spec.image.url"),
        ({"power": "On"}, "spec.power"),
        ({"rootDisk": {"size": "10"}}, "must be at least 1Mi"),
        ({"publicIP": {"mode": "Auto"}}, "poolName is required if mode is Auto"),
        (
            {"publicIP": {"mode": "None", "ports": [{"name": "a", "port": 80}]}},
            "ports may be set only if mode is Auto",
        ),
        ({"readinessProbe": {}}, "exactly one of tcpSocket, httpGet and guestAgentPing"),
        (
            {"readinessProbe": {"tcpSocket": {"port": 1}, "guestAgentPing": {}}},
            "exactly one of tcpSocket, httpGet and guestAgentPing",
        ),
        (
            {"publicIP": {"mode": "None", "claimName": "web"}},
            "claimName is required if mode is Claim",
        ),
        ({"privateIP": "10.0.0.300"}, "must be an IP address"),
        (
            {"volumes": [{"name": "root", "claim": "a"}]},
            "root, cloud-init and rescued are reserved names",
        ),
        ({"volumes": [{"name": "a"}]}, "exactly one of demoVolume and claim"),
        ({"volumes": [{"name": "a", "claim": "b"}] * 2}, "Duplicate value"),
        ({"ssh": {"authorizedKeys": ["a\nb"]}}, "spec.ssh.authorizedKeys"),
        ({"ssh": {"user": "ada"}, "userDataSecretName": "mine"}, "add users to that Secret"),
        (
            {"directives": [{"kind": "Restart", "token": "t"}]},
            "vmiUID is required if kind is Restart",
        ),
        (
            {"directives": [{"kind": "RootDisk", "token": "t"}]},
            "disk is required if kind is RootDisk",
        ),
        ({"hostname": "A_b"}, "spec.hostname"),
    ],
)
async def test_server_refuses_an_instance_that_makes_no_sense(
    client: Client, kube_namespace: str, spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        await client.create(INSTANCE, build_instance("web", kube_namespace, **spec))


@pytest.mark.apiserver
async def test_server_refuses_a_name_that_is_no_host_name(
    client: Client, kube_namespace: str
) -> None:
    for name in ("web.example", "w" * 64):
        with pytest.raises(Invalid, match="the name becomes a host name"):
            await client.create(INSTANCE, build_instance(name, kube_namespace))


@pytest.mark.apiserver
async def test_network_and_private_address_are_for_life(
    client: Client, kube_namespace: str
) -> None:
    key = Key(kube_namespace, "web")
    spec = {"networkRef": {"name": "a"}, "privateIP": "10.0.0.7"}
    await client.create(INSTANCE, build_instance("web", kube_namespace, **spec))

    for change in ({"networkRef": {"name": "b"}}, {"networkRef": None}, {"privateIP": "10.0.0.8"}):
        with pytest.raises(Invalid):
            await merge(client, INSTANCE, key, {"spec": change})
    await merge(client, INSTANCE, key, {"spec": {"power": "Stopped", "size": "large"}})


@pytest.mark.apiserver
async def test_pool_of_an_address_is_for_as_long_as_there_is_the_address(
    client: Client, kube_namespace: str
) -> None:
    key = Key(kube_namespace, "web")
    public = {"mode": "Auto", "poolName": "a"}
    await client.create(INSTANCE, build_instance("web", kube_namespace, publicIP=public))

    with pytest.raises(Invalid, match="poolName is immutable while mode is Auto"):
        await merge(client, INSTANCE, key, {"spec": {"publicIP": {"poolName": "b"}}})
    kept = {"mode": "Claim", "poolName": None, "claimName": "web-public"}
    await merge(client, INSTANCE, key, {"spec": {"publicIP": kept}})
    other = {"mode": "Auto", "poolName": "b", "claimName": None}
    await merge(client, INSTANCE, key, {"spec": {"publicIP": other}})


@pytest.mark.apiserver
async def test_size_is_immutable_and_has_sane_amounts(client: Client) -> None:
    with pytest.raises(Invalid, match="at least 64Mi"):
        await client.create(INSTANCE_SIZE, build_size(SIZE.name, memory="4"))
    await client.create(INSTANCE_SIZE, build_size(SIZE.name))

    with pytest.raises(Invalid, match="an InstanceSize is immutable"):
        await merge(client, INSTANCE_SIZE, SIZE, {"spec": {"cpus": 4}})


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("type_", "spec", "message"),
    [
        ("Resize", {}, "resize must be set if type is Resize"),
        ("Reboot", {"resize": {"size": "large"}}, "resize must be set if type is Resize"),
        ("Reboot", {"rebuild": {}}, "rebuild may be set only if type is Rebuild"),
        ("Stop", {"migrate": {}}, "migrate may be set only if type is Migrate"),
        ("Restore", {}, "restore must be set if type is Restore"),
        ("Rescue", {"rescue": {"image": {}}}, "image needs exactly one of"),
        ("Reboot", {"softReboot": {}}, "softReboot may be set only if type is SoftReboot"),
        ("Rebuild", {"snapshot": {}}, "snapshot may be set only if type is Snapshot"),
        ("Reinstall", {}, "spec.type"),
        ("Reboot", {"timeoutSeconds": 1}, "spec.timeoutSeconds"),
    ],
)
async def test_server_refuses_an_operation_that_makes_no_sense(
    client: Client, kube_namespace: str, type_: str, spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        await client.create(
            OPERATION, build_operation(type_, "op", namespace=kube_namespace, **spec)
        )


@pytest.mark.apiserver
async def test_operation_is_fixed_but_for_cancel(client: Client, kube_namespace: str) -> None:
    key = Key(kube_namespace, "op")
    await client.create(OPERATION, build_operation("Reboot", "op", namespace=kube_namespace))

    for change in (
        {"type": "Stop"},
        {"targetRef": {"name": "other"}},
        {"timeoutSeconds": 60},
        {"queue": "FailIfBusy"},
        {"ttlSecondsAfterFinished": 1},
    ):
        with pytest.raises(Invalid, match=r"immutable|cannot be set"):
            await merge(client, OPERATION, key, {"spec": change})
    await merge(client, OPERATION, key, {"spec": {"cancel": True}})
    with pytest.raises(Invalid, match="cannot be withdrawn"):
        await merge(client, OPERATION, key, {"spec": {"cancel": False}})


@pytest.mark.apiserver
@pytest.mark.parametrize("final", ["Succeeded", "Failed", "Cancelled"])
async def test_operation_that_has_ended_stays_as_it_ended(
    client: Client, kube_namespace: str, final: str
) -> None:
    key = Key(kube_namespace, "op")
    await client.create(OPERATION, build_operation("Reboot", "op", namespace=kube_namespace))
    await merge(client, OPERATION, key, {"status": {"phase": "Running"}}, "status")
    await merge(client, OPERATION, key, {"status": {"phase": final}}, "status")

    for change in ({"phase": "Running"}, {"phase": None}):
        with pytest.raises(Invalid, match="the result of a finished Operation is immutable"):
            await merge(client, OPERATION, key, {"status": change}, "status")
    with pytest.raises(Invalid, match="the result of a finished Operation is immutable"):
        await merge(client, OPERATION, key, {"status": None}, "status")
    await merge(client, OPERATION, key, {"status": {"message": "told later"}}, "status")


async def merge(
    client: Client, kind: Kind, key: Key, patch: Manifest, subresource: str = ""
) -> Manifest:
    """Change an object as `kubectl patch --type merge` does."""
    held = await client.get(kind, key)
    return await client.replace(kind, _merged(held, patch), subresource=subresource)


def _merged(held: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(held, dict):
        return patch
    merged = {name: value for name, value in held.items() if name not in patch}
    return merged | {
        name: _merged(held.get(name), value) for name, value in patch.items() if value is not None
    }

"""Attempts through objects of tenants, which the running operators answer with a condition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from libs.common.errors import NotFound
from libs.common.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    POD,
    PVC,
    SERVICE,
    Key,
    Kind,
    Manifest,
    build_object,
    key_of,
    uid_of,
)
from libs.common.labels import MANAGED_BY, PAUSED
from libs.contracts.compute import INSTANCE
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import VIRTUAL_MACHINE
from libs.contracts.network import NETWORK
from libs.contracts.volumes import DEMO_VOLUME
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.samples import CONFIG, build_exporter
from operators.podset.controller import PODSET
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.samples import build_spec
from tests.attacks.attempt import Act, Attempt
from tests.attacks.stage import (
    EDITOR,
    NEIGHBOR,
    POLICY,
    ROOT,
    TENANT,
    VICTIM,
    Stage,
    outcome_of,
)

_NAMESPACES: Final = {EDITOR: TENANT, VICTIM: NEIGHBOR, ROOT: TENANT}
type Spec = Mapping[str, Any]
type Prepare = Callable[[Stage], Awaitable[None]]


async def nothing(_: Stage) -> None:
    """Prepare nothing."""


def submit(
    who: str, kind: Kind, name: str, spec: Spec, expected: str, prepare: Prepare = nothing
) -> Act:
    """Build an attempt to create an object; returns the condition that answers it.

    Args:
        who: Who creates it.
        kind: Its kind.
        name: Its name.
        spec: Its spec.
        expected: `Type=Status: Reason` to wait for.
        prepare: What must exist before.
    """

    async def act(stage: Stage) -> str:
        await prepare(stage)
        manifest = build_object(kind, name, _NAMESPACES[who], spec=dict(spec))
        await stage.client(who).create(kind, manifest)
        type_, _, reason = expected.partition("=")
        found = await stage.wait_condition(kind, key_of(manifest), type_, reason.partition(": ")[2])
        return f"`{found}`"

    return act


def row(
    id_: str,
    what: str,
    kind: Kind,
    bad: tuple[Spec, str],
    control: str,
    good: tuple[Spec, str],
    *,
    by: str = EDITOR,
    prepare: Prepare = nothing,
) -> Attempt:
    """Build an attempt and its control: the same kind with another spec or of another tenant."""
    return Attempt(
        id_,
        "editor of a tenant's namespace",
        what,
        f"`{bad[1]}`",
        control,
        submit(EDITOR, kind, f"{id_}-bad", *bad, prepare),
        submit(by, kind, f"{id_}-good", *good),
        f"`{good[1]}`",
    )


def claim(pool: str = "public", **spec: Any) -> Manifest:
    """Build the spec of an IPClaim."""
    return {"poolRef": {"name": pool}, **spec}


def attached(provider: str, vlan: int) -> Manifest:
    """Build the spec of a Network that is a VLAN of a bridge."""
    reference = {"providerNetworkRef": {"name": provider}, "vlan": vlan}
    return {"cidrs": ["10.5.0.0/24"], "backend": "Multus", **reference}


async def hold_address(stage: Stage) -> None:
    """Give the neighbor the address 203.0.113.5."""
    ready = "Ready=True: Allocated"
    await submit(VICTIM, IP_CLAIM, "theirs", claim(address="203.0.113.5"), ready)(stage)


async def hold_vlan(stage: Stage) -> None:
    """Give the neighbor the VLAN 100."""
    ready = "Attachable=True: InPlace"
    await submit(VICTIM, NETWORK, "theirs", attached("fabric", 100), ready)(stage)


async def fill_quota(stage: Stage) -> None:
    """Let the tenant have what its quota allows."""
    await submit(EDITOR, IP_CLAIM, "first", claim("small"), "Ready=True: Allocated")(stage)


async def write_endpoints(stage: Stage) -> None:
    """Create a Service whose endpoint somebody with that right has written by hand."""
    root = stage.client(ROOT)
    spec = {"ports": [{"port": 443, "name": "a"}]}
    await stage.client(EDITOR).create(SERVICE, build_object(SERVICE, "forged", TENANT, spec=spec))
    slice_: Manifest = {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.96.0.1"], "conditions": {"ready": True}}],
        "ports": [{"port": 443, "name": "a"}],
    }
    labels = {"labels": {"kubernetes.io/service-name": "forged"}}
    written = build_object(ENDPOINT_SLICE, "forged", TENANT, metadata=labels)
    await root.create(ENDPOINT_SLICE, {**written, **slice_})


async def claim_service(stage: Stage) -> None:
    """Create a claim, whose Service another claim can name."""
    target = {"kind": "Address", "address": "10.0.0.1"}
    ports = [{"name": "a", "port": 80}]
    await submit(EDITOR, IP_CLAIM, "real", claim("open", target=target, ports=ports), BOUND)(stage)


def service(name: str) -> Manifest:
    """Build the target of a claim."""
    return {"target": {"kind": "Service", "name": name}}


PLAIN: Final[Manifest] = {
    "target": {"kind": "Address", "address": "10.96.0.1"},
    "ports": [{"name": "a", "port": 443}],
}
ALLOCATED: Final = "Ready=True: Allocated"
BOUND: Final = "Bound=False: WaitingForLoadBalancer"
"""Routed; no load balancer runs here."""


def unlabel(_: Manifest) -> Manifest:
    """Remove the label of Services of claims."""
    return {"metadata": {"labels": {MANAGED_BY: None}}}


def copy_address(live: Manifest) -> Manifest:
    """Copy the address of a Service to another field."""
    address = live["metadata"]["annotations"]["metallb.io/loadBalancerIPs"]
    return {"spec": {"externalIPs": [address]}}


def change_service(who: str, build_patch: Callable[[Manifest], Manifest]) -> Act:
    """Build an attempt to change the Service of the claim `real`."""

    async def act(stage: Stage) -> str:
        key = Key(TENANT, "real-ip")

        async def labeled() -> bool:
            live = await stage.client(ROOT).get(SERVICE, key)
            return MANAGED_BY in live["metadata"]["labels"]

        await stage.wait_until(labeled, "the operator restores the label")
        patch = build_patch(await stage.client(ROOT).get(SERVICE, key))
        return await outcome_of(stage.client(who).patch(SERVICE, key, patch))

    return act


async def outlive_claim(stage: Stage) -> str:
    """Delete a claim without its Service; a neighbor gets its address."""
    root, tenant, key = stage.client(ROOT), stage.client(EDITOR), Key(TENANT, "left")
    pool = {"family": "IPv4", "addresses": ["203.0.113.200"], "reuseGraceSeconds": 0}
    await root.create(IP_POOL, build_object(IP_POOL, "single", spec={**pool, **ALLOW}))
    await submit(EDITOR, IP_CLAIM, key.name, claim("single", **PLAIN), BOUND)(stage)
    await tenant.patch(IP_CLAIM, key, {"metadata": {"annotations": {PAUSED: "true"}}})
    live = await root.get(IP_CLAIM, key)
    await tenant.delete(IP_CLAIM, key, uid=uid_of(live), propagation="Orphan")
    service_key = Key(TENANT, "left-ip")

    async def orphaned() -> bool:
        return not (await root.get(SERVICE, service_key))["metadata"].get("ownerReferences")

    await stage.wait_until(orphaned, "the Service belongs to no claim")
    await tenant.patch(IP_CLAIM, key, {"metadata": {"finalizers": None}})
    await submit(VICTIM, IP_CLAIM, "after", claim("single"), ALLOCATED)(stage)
    try:
        await root.get(SERVICE, service_key)
    except NotFound:
        return "the operator deletes the Service before it allocates the address again"
    return "the Service stays"


async def keep_claim(stage: Stage) -> str:
    """Keep a claim with its Service."""
    await stage.client(ROOT).get(SERVICE, Key(TENANT, "real-ip"))
    return "the Service stays"


ALLOW: Final = {"addressTargets": "Allow"}
CLAIMS: Final = (
    row(
        "taken",
        "claim the address that a neighbor has",
        IP_CLAIM,
        (claim(address="203.0.113.5"), "Ready=False: AddressTaken"),
        "a free address",
        (claim(address="203.0.113.6"), ALLOCATED),
        prepare=hold_address,
    ),
    row(
        "closed-pool",
        "claim an address of a pool for other namespaces",
        IP_CLAIM,
        (claim("private"), "Ready=False: NamespaceNotAllowed"),
        "the namespace for which the pool is",
        (claim("private"), ALLOCATED),
        by=VICTIM,
    ),
    row(
        "quota",
        "claim more addresses than `quotaPerNamespace` of the pool",
        IP_CLAIM,
        (claim("small"), "Ready=False: QuotaExceeded"),
        "the first claim of another namespace",
        (claim("small"), ALLOCATED),
        by=VICTIM,
        prepare=fill_quota,
    ),
    row(
        "plain-target",
        "route an address to the API server with a target of kind Address",
        IP_CLAIM,
        (claim(**PLAIN), "Bound=False: TargetNotAllowed"),
        "a pool with `addressTargets: Allow`",
        (claim("open", **PLAIN), BOUND),
    ),
    row(
        "forged-endpoints",
        "route an address to the API server with a Service and endpoints written by hand",
        IP_CLAIM,
        (claim(**service("forged")), "Bound=False: TargetNotAllowed"),
        "a pool with `addressTargets: Allow`",
        (claim("open", **service("forged")), BOUND),
        prepare=write_endpoints,
    ),
    row(
        "circle",
        "let two claims name each other's Service, so that they write without end",
        IP_CLAIM,
        (claim("open", **service("real-ip")), "Bound=False: TargetNotAllowed"),
        "a Service of one's own",
        (claim("open", **service("forged")), BOUND),
        prepare=claim_service,
    ),
    Attempt(
        "unlabel",
        "editor of a tenant's namespace",
        "take the label off the Service of a claim, so that the operator does not delete it",
        POLICY,
        "the account of ipam",
        change_service(EDITOR, unlabel),
        change_service("operator:ipam", unlabel),
    ),
    Attempt(
        "another-field",
        "editor of a tenant's namespace",
        "copy the address of a claim to `externalIPs` of its Service, to keep it there",
        POLICY,
        "the account of ipam",
        change_service(EDITOR, copy_address),
        change_service("operator:ipam", copy_address),
    ),
    Attempt(
        "outlive",
        "editor of a tenant's namespace",
        "receive the traffic of the next claim with the Service of a paused claim that one deletes "
        "with `--cascade=orphan`",
        "the operator deletes the Service before it allocates the address again",
        "the Service of a claim that one keeps",
        outlive_claim,
        keep_claim,
        "the Service stays",
    ),
)
NETWORKS: Final = (
    row(
        "closed-provider",
        "attach machines to a bridge that is for other namespaces",
        NETWORK,
        (attached("backbone", 150), "Attachable=False: NamespaceNotAllowed"),
        "the namespace for which the bridge is",
        (attached("backbone", 150), "Attachable=True: InPlace"),
        by=VICTIM,
    ),
    row(
        "vlan",
        "join the VLAN of a neighbor",
        NETWORK,
        (attached("fabric", 100), "Attachable=False: VlanTaken"),
        "a VLAN that nobody has",
        (attached("fabric", 101), "Attachable=True: InPlace"),
        prepare=hold_vlan,
    ),
    row(
        "vlan-range",
        "join a VLAN that the administrator does not offer",
        NETWORK,
        (attached("fabric", 7), "Attachable=False: VlanNotAllowed"),
        "a VLAN that is offered",
        (attached("fabric", 102), "Attachable=True: InPlace"),
    ),
)


def machine(url: str = "https://images.example.com/debian.qcow2") -> Manifest:
    """Build the spec of an Instance."""
    return {"size": "small", "image": {"url": url}}


async def take_machine(stage: Stage) -> None:
    """Create a VirtualMachine that no Instance has made."""
    foreign = build_object(VIRTUAL_MACHINE, "foreign-machine-bad", TENANT, spec={"running": True})
    await stage.client(ROOT).create(VIRTUAL_MACHINE, foreign)


PROVISIONING: Final = "Provisioned=False: Provisioning"
IMAGE_REFUSED: Final = "Provisioned=False: ImageRefused"
MACHINES: Final = (
    row(
        "metadata",
        "read the credentials of a node: an image from 169.254.169.254",
        INSTANCE,
        (machine("http://169.254.169.254/latest/"), IMAGE_REFUSED),
        "an image from a web server",
        (machine(), PROVISIONING),
    ),
    row(
        "metadata-spelled",
        "the same in another spelling (`http://[64:ff9b::a9fe:a9fe]/`)",
        INSTANCE,
        (machine("http://[64:ff9b::a9fe:a9fe]/x"), IMAGE_REFUSED),
        "an IPv6 address elsewhere",
        (machine("http://[2001:db8::1]/x"), PROVISIONING),
    ),
    row(
        "metadata-encoded",
        "the same with encoded digits (`http://%EF%BC%91%EF%BC%96%EF%BC%99.254.169.254/`)",
        INSTANCE,
        (machine("http://%EF%BC%91%EF%BC%96%EF%BC%99.254.169.254/x"), IMAGE_REFUSED),
        "encoded characters in the path",
        (machine("http://images.example.com/%EF%BC%91"), PROVISIONING),
    ),
    row(
        "loopback",
        "read what a node serves on its loopback address",
        INSTANCE,
        (machine("https://127.0.0.1:6443/x"), IMAGE_REFUSED),
        "an image from a web server",
        (machine("https://images.example.com/x"), PROVISIONING),
    ),
    row(
        "foreign-machine",
        "take over a VirtualMachine of somebody else with an Instance of its name",
        INSTANCE,
        (machine(), "Ready=False: Conflict"),
        "a name that is free",
        (machine(), PROVISIONING),
        prepare=take_machine,
    ),
)


def pods(**spec: Any) -> Manifest:
    """Build the spec of a PodSet."""
    containers = [{"name": "main", "image": "busybox", **spec.pop("container", {})}]
    labels = {"app": "thief"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers, **spec}}
    return {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}


async def take_pod(stage: Stage) -> None:
    """Create a pod with the name of a slot of a PodSet."""
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    await stage.client(ROOT).create(
        POD, build_object(POD, "foreign-pod-bad-pod-0", TENANT, spec=spec)
    )


async def take_volume(stage: Stage) -> None:
    """Create a claim that no DemoVolume has made."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await stage.client(ROOT).create(PVC, build_object(PVC, "foreign-volume-bad", TENANT, spec=spec))


async def take_deployment(stage: Stage) -> None:
    """Create a Deployment that no PulsarConsumer has made."""
    labels = {"app": "other"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    await stage.client(ROOT).create(
        DEPLOYMENT, build_object(DEPLOYMENT, "foreign-consumer-bad", TENANT, spec=spec)
    )


def exporter(name: str) -> Manifest:
    """Build the spec of an exporter with a ConfigMap."""
    spec: Manifest = build_exporter()["spec"]
    return {**spec, "config": {"configMapName": name, "configMapKey": "config.yaml"}}


def write_rules(name: str, text: str) -> Prepare:
    """Build the creation of a ConfigMap of rules."""

    async def prepare(stage: Stage) -> None:
        data = {"config.yaml": text}
        manifest = build_object(CONFIG_MAP, name, TENANT, data=data)
        await stage.client(EDITOR).create(CONFIG_MAP, manifest)

    return prepare


_NOWHERE: Final = {"adminAddress": "http://broker.invalid:8080"}
_METADATA: Final = {"adminAddress": "http://169.254.169.254"}
_ALIASES: Final = "a0: &a0 [x]\n" + "\n".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]" for number in range(1, 9)
)
_MERGES: Final = "0: &0 {}\n" + "\n".join(
    f"{number}: &{number} {{<<: *{number - 1},k{number}: }}" for number in range(1, 3_000)
)
WORKLOADS: Final = (
    row(
        "privileged",
        "run a privileged pod through a PodSet, where Pod Security forbids it",
        PODSET,
        (pods(container={"securityContext": {"privileged": True}}), "Ready=False: FailedCreate"),
        "an ordinary pod",
        (pods(), "Ready=False: PodsNotReady"),
    ),
    row(
        "host-path",
        "mount the file system of a node through a PodSet",
        PODSET,
        (
            pods(volumes=[{"name": "root", "hostPath": {"path": "/"}}]),
            "Ready=False: FailedCreate",
        ),
        "an ordinary pod",
        (pods(), "Ready=False: PodsNotReady"),
    ),
    row(
        "foreign-pod",
        "take over a pod of somebody else with a PodSet of its name",
        PODSET,
        (pods(), "Conflict=True: NameTaken"),
        "a name that is free",
        (pods(), "Conflict=False: AsExpected"),
        prepare=take_pod,
    ),
    row(
        "foreign-volume",
        "delete a claim of somebody else with a DemoVolume of its name",
        DEMO_VOLUME,
        ({"size": 1, "reclaimPolicy": "Delete"}, "Conflict=True: UnownedClaim"),
        "a name that is free",
        ({"size": 1}, "Conflict=False: NoConflict"),
        prepare=take_volume,
    ),
    row(
        "foreign-consumer",
        "replace a Deployment of somebody else with a PulsarConsumer of its name",
        PULSAR_CONSUMER,
        (build_spec(), "Ready=False: NotApplied"),
        "a name that is free",
        (build_spec(), "Ready=False: Starting"),
        prepare=take_deployment,
    ),
    row(
        "admin-address",
        "let the operator ask what a node serves on its metadata address",
        PULSAR_CONSUMER,
        (
            build_spec(**_METADATA),
            "BrokerReachable=False: RefusedAddress",
        ),
        "another address, where nobody answers",
        (build_spec(**_NOWHERE), "BrokerReachable=False: Unreachable"),
    ),
    row(
        "deep-rules",
        "end the operator with 30,000 brackets in rules of an exporter",
        PROMETHEUS_JMX_EXPORTER,
        (exporter("deep"), "ConfigValid=False: ConfigInvalid"),
        "ordinary rules",
        (exporter("plain"), "ConfigValid=True: ConfigAccepted"),
        prepare=write_rules("deep", "a: " + "[" * 30_000),
    ),
    row(
        "merges",
        "occupy the operator with 3,000 maps that each include the one before",
        PROMETHEUS_JMX_EXPORTER,
        (exporter("merges"), "ConfigValid=False: ConfigInvalid"),
        "ordinary rules",
        (exporter("plain"), "ConfigValid=True: ConfigAccepted"),
        prepare=write_rules("merges", _MERGES),
    ),
    row(
        "aliases",
        "fill its memory with aliases in rules of an exporter",
        PROMETHEUS_JMX_EXPORTER,
        (exporter("aliases"), "ConfigValid=False: ConfigInvalid"),
        "ordinary rules",
        (exporter("plain"), "ConfigValid=True: ConfigAccepted"),
        prepare=write_rules("aliases", _ALIASES),
    ),
)
OBJECT_ATTEMPTS: Final = (*CLAIMS, *NETWORKS, *MACHINES, *WORKLOADS)
PLAIN_RULES: Final = build_object(CONFIG_MAP, "plain", TENANT, data={"config.yaml": CONFIG})
UNTOUCHED: Final = (
    (VIRTUAL_MACHINE, Key(TENANT, "foreign-machine-bad")),
    (POD, Key(TENANT, "foreign-pod-bad-pod-0")),
    (PVC, Key(TENANT, "foreign-volume-bad")),
    (DEPLOYMENT, Key(TENANT, "foreign-consumer-bad")),
)
"""Objects of others, which must be as they were."""

"""Attempts that the API server itself decides: RBAC, CRDs and admission."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.kinds import (
    CLUSTER_ROLE_BINDING,
    CRD,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    LEASE,
    NAMESPACE,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
    Manifest,
    build_object,
)
from libs.common.testing.helm import find_charts
from libs.contracts.compute import INSTANCE, INSTANCE_SIZE, OPERATION
from libs.contracts.ip_claims import IP_ALLOCATION, IP_CLAIM, IP_POOL
from libs.contracts.kubevirt import VIRTUAL_MACHINE
from libs.contracts.multus import NETWORK_ATTACHMENT_DEFINITION
from operators.network.api.v1alpha1 import PROVIDER_NETWORK
from tests.attacks.attempt import Act, Attempt
from tests.attacks.stage import (
    ADMIN,
    EDITOR,
    ESCALATION,
    HOME,
    INSIDER,
    NEIGHBOR,
    PEOPLE,
    POLICY,
    RBAC,
    ROOT,
    STRANGER,
    SUCCEEDS,
    TENANT,
    VICTIM,
    Stage,
    outcome_of,
)

_POLICY: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    namespaced=False,
)
_POD: Final[Manifest] = {"containers": [{"name": "a", "image": "b"}]}
_TITLES: Final = {
    EDITOR: "editor of a tenant's namespace",
    ADMIN: "administrator of a tenant's namespace",
}
_CONTROLS: Final = {
    ROOT: "an administrator of the cluster",
    INSIDER: "an editor of `slipway-system`, which is why nobody may be one",
    VICTIM: "an editor of that namespace",
    EDITOR: "an editor of the namespace",
    "operator:ipam": "the account of ipam",
    "operator:network": "the account of network",
    "operator:compute": "the account of compute",
    "operator:podset": "the account of podset, in a watched namespace",
}


def call(who: str, method: str, path: str, body: Manifest | None = None) -> Act:
    """Build an attempt that is one request."""

    async def act(stage: Stage) -> str:
        return await outcome_of(stage.client(who).raw(method, path, body))

    return act


def create(who: str, kind: Kind, manifest: Manifest) -> Act:
    """Build an attempt to create an object: a dry run, which is decided in the same way."""
    path = kind.path(manifest["metadata"].get("namespace", ""))
    return call(who, "POST", f"{path}?dryRun=All", manifest)


def change(who: str, kind: Kind, manifest: Manifest, subresource: str = "") -> Act:
    """Build an attempt to patch an object: a dry run as well."""

    async def act(stage: Stage) -> str:
        apply = stage.client(who).apply
        return await outcome_of(
            apply(kind, manifest, field_manager="attack", subresource=subresource, dry_run=True)
        )

    return act


def steal_tokens(who: str) -> Act:
    """Build an attempt to get a token of each operator; the worst outcome counts."""

    async def act(stage: Stage) -> str:
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        outcomes = {
            await call(who, "POST", SERVICE_ACCOUNT.path(HOME, each, "token"), request)(stage)
            for each in find_charts()
        }
        return SUCCEEDS if SUCCEEDS in outcomes else ", ".join(sorted(outcomes))

    return act


def impersonate(who: str) -> Act:
    """Build an attempt to read with `--as` the account of clusters."""

    async def act(stage: Stage) -> str:
        account = f"system:serviceaccount:{HOME}:clusters"
        config = replace(stage.client(who).config, impersonation=(("Impersonate-User", account),))
        async with Client(config) as client:
            return await outcome_of(client.list(SECRET, TENANT))

    return act


def read_as_stranger(token: str) -> Act:
    """Build an attempt to read Secrets with a token of somewhere else, or with none."""

    async def act(stage: Stage) -> str:
        config = stage.plane.config_for(token) if token else _anonymous(stage)
        async with Client(config) as client:
            return await outcome_of(client.list(SECRET, TENANT))

    return act


def _anonymous(stage: Stage) -> ConnectionConfig:
    return ConnectionConfig(stage.plane.url, ca_file=stage.plane.config.ca_file)


def open_console(namespace: str) -> Act:
    """Build an attempt of the editor to open a console, whose API is not installed here."""

    async def act(stage: Stage) -> str:
        attributes = {
            "namespace": namespace,
            "verb": "get",
            "group": "subresources.kubevirt.io",
            "resource": "virtualmachineinstances",
            "subresource": "console",
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await stage.client(EDITOR).raw("POST", path, review)
        return SUCCEEDS if answer["status"]["allowed"] else RBAC

    return act


def both(
    id_: str,
    what: str,
    act: Any,
    *arguments: Any,
    who: str = EDITOR,
    outcome: str = RBAC,
    control: str = ROOT,
    success: str = SUCCEEDS,
) -> Attempt:
    """Build an attempt whose control is the same request of somebody else."""
    return Attempt(
        id_,
        _TITLES.get(who) or f"somebody with the token of {who.removeprefix('operator:')}",
        what,
        outcome,
        _CONTROLS[control],
        act(who, *arguments),
        act(control, *arguments),
        success,
    )


def pod(namespace: str, **spec: Any) -> Manifest:
    """Build a pod."""
    return build_object(POD, "thief", namespace, spec={**_POD, **spec})


def deployment(namespace: str, **spec: Any) -> Manifest:
    """Build a Deployment."""
    labels = {"app": "thief"}
    template = {"metadata": {"labels": labels}, "spec": {**_POD, **spec}}
    fields = {"selector": {"matchLabels": labels}, "template": template}
    return build_object(DEPLOYMENT, "thief", namespace, spec=fields)


def binding(namespace: str, role: str, user: str, kind: str = "ClusterRole") -> Manifest:
    """Build a RoleBinding for a user, or with no namespace a ClusterRoleBinding."""
    bound = ROLE_BINDING if namespace else CLUSTER_ROLE_BINDING
    subject = {"kind": "ServiceAccount", "name": user, "namespace": PEOPLE}
    reference = {"apiGroup": ROLE.group, "kind": kind, "name": role}
    return build_object(bound, "thief", namespace, subjects=[subject], roleRef=reference)


def service(namespace: str = TENANT, **fields: Any) -> Manifest:
    """Build a Service."""
    metadata = fields.pop("metadata", {})
    spec = {"ports": [{"port": 80}], **fields}
    return build_object(SERVICE, "thief", namespace, metadata=metadata, spec=spec)


_TOKEN_SECRET: Final = build_object(
    SECRET,
    "thief",
    HOME,
    type="kubernetes.io/service-account-token",
    metadata={"annotations": {"kubernetes.io/service-account.name": "clusters"}},
)
_IMAGE: Final[Manifest] = {
    "template": {"spec": {"containers": [{"name": "operator", "image": "evil/image"}]}}
}
_EXEC: Final = f"{POD.path(HOME, 'operator', 'exec')}?command=cat&stdout=true"
_TAKEN: Final = "203.0.113.7"
_SLICE: Final[Manifest] = {
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.0.0.1"]}],
    "ports": [{"port": 443}],
}

ENTRY: Final = (
    both(
        "tokens",
        "create a token of any of the eight operators",
        steal_tokens,
        control=INSIDER,
    ),
    both(
        "pod",
        "run a pod with the account of an operator",
        create,
        POD,
        pod(HOME, serviceAccountName="clusters", automountServiceAccountToken=True),
        control=INSIDER,
    ),
    both(
        "deployment",
        "run a Deployment with the account of an operator",
        create,
        DEPLOYMENT,
        deployment(HOME, serviceAccountName="clusters"),
        control=INSIDER,
    ),
    both(
        "image",
        "change the image of an operator's Deployment",
        change,
        DEPLOYMENT,
        build_object(DEPLOYMENT, "clusters", HOME, spec=_IMAGE),
        control=INSIDER,
    ),
    both("as", "impersonate the account of an operator (`--as`)", impersonate, control=INSIDER),
    both("exec", "run a command in an operator's pod", call, "POST", _EXEC, control=INSIDER),
    both(
        "attach",
        "attach to an operator's pod",
        call,
        "POST",
        f"{POD.path(HOME, 'operator', 'attach')}?stdout=true",
        control=INSIDER,
    ),
    both(
        "debug",
        "add a debug container to an operator's pod",
        change,
        POD,
        build_object(
            POD, "operator", HOME, spec={"ephemeralContainers": [{"name": "x", "image": "b"}]}
        ),
        "ephemeralcontainers",
    ),
    both(
        "secret",
        "read a Secret in `slipway-system`",
        call,
        "GET",
        SECRET.path(HOME, "webhook-key"),
        control=INSIDER,
    ),
    both(
        "token-secret",
        "create a Secret that receives a token of an operator",
        create,
        SECRET,
        _TOKEN_SECRET,
        control=INSIDER,
    ),
    both(
        "lease",
        "take over the Lease of an operator, to stop it",
        change,
        LEASE,
        build_object(LEASE, "clusters", HOME, spec={"holderIdentity": "thief"}),
        control=INSIDER,
    ),
    both(
        "bind-home",
        "bind the role `edit` in `slipway-system` to oneself",
        create,
        ROLE_BINDING,
        binding(HOME, "edit", EDITOR),
    ),
    both(
        "policy",
        "delete the admission policy that guards addresses",
        call,
        "DELETE",
        _POLICY.path("", f"ipam-{HOME}-addresses") + "?dryRun=All",
    ),
    both(
        "crd",
        "delete a CRD, and with it all objects of its kind",
        call,
        "DELETE",
        CRD.path("", "ipclaims.ipam.slipway.dev") + "?dryRun=All",
    ),
    both(
        "namespace",
        "change the labels of one's namespace, which pools and networks select by",
        change,
        NAMESPACE,
        build_object(NAMESPACE, TENANT, metadata={"labels": {"tier": "gold"}}),
    ),
)
"""Attempts to enter the namespace of the operators, or to change what protects it."""

BEYOND: Final = (
    both(
        "pool",
        "change an IPPool",
        change,
        IP_POOL,
        build_object(IP_POOL, "public", spec={"quotaPerNamespace": 1000}),
    ),
    both(
        "ledger",
        "delete allocations of addresses",
        call,
        "DELETE",
        f"{IP_ALLOCATION.path('')}?dryRun=All",
    ),
    both(
        "provider",
        "let a ProviderNetwork allow every namespace",
        change,
        PROVIDER_NETWORK,
        build_object(PROVIDER_NETWORK, "backbone", spec={"allowedNamespaces": {}}),
    ),
    both(
        "size",
        "create an InstanceSize",
        create,
        INSTANCE_SIZE,
        build_object(INSTANCE_SIZE, "huge", spec={"cpus": 64, "memory": "1Ti", "disk": "1Ti"}),
    ),
    both(
        "status-claim",
        "write the status of one's IPClaim, with a neighbor's address",
        change,
        IP_CLAIM,
        build_object(IP_CLAIM, "mine", TENANT, status={"address": _TAKEN}),
        "status",
        control="operator:ipam",
    ),
    both(
        "status-instance",
        "write the status of one's Instance, with a neighbor's pod address",
        change,
        INSTANCE,
        build_object(INSTANCE, "mine", TENANT, status={"podIPs": ["10.0.0.9"]}),
        "status",
        control="operator:compute",
    ),
    both(
        "read-neighbor",
        "read the Secrets of another tenant",
        call,
        "GET",
        SECRET.path(NEIGHBOR),
        control=VICTIM,
    ),
    both(
        "reboot-neighbor",
        "reboot a machine of another tenant",
        create,
        OPERATION,
        build_object(
            OPERATION, "op", NEIGHBOR, spec={"type": "Reboot", "targetRef": {"name": "web"}}
        ),
        control=VICTIM,
    ),
    Attempt(
        "console",
        _TITLES[EDITOR],
        "open the console of a machine of another tenant",
        RBAC,
        "a machine of one's own namespace, without `kubevirt.io:edit`",
        open_console(NEIGHBOR),
        open_console(TENANT),
    ),
    both(
        "attachment",
        "write a NetworkAttachmentDefinition for a bridge of the nodes",
        create,
        NETWORK_ATTACHMENT_DEFINITION,
        build_object(NETWORK_ATTACHMENT_DEFINITION, "any", TENANT, spec={"config": "{}"}),
        control="operator:network",
    ),
    both(
        "slice",
        "route a Service to any address with an EndpointSlice of one's own",
        create,
        ENDPOINT_SLICE,
        {**build_object(ENDPOINT_SLICE, "any", TENANT), **_SLICE},
        control="operator:ipam",
    ),
    both(
        "raw-machine",
        "create a VirtualMachine past Instance, where KubeVirt [does not extend the role "
        "`edit`](#machines-past-instances)",
        create,
        VIRTUAL_MACHINE,
        build_object(VIRTUAL_MACHINE, "raw", TENANT, spec={"running": True}),
        control="operator:compute",
    ),
    both(
        "escalate-binding",
        "bind the ClusterRole of an operator in one's namespace to oneself",
        create,
        ROLE_BINDING,
        binding(TENANT, f"clusters-{HOME}-watched", ADMIN),
        who=ADMIN,
        outcome=ESCALATION,
    ),
    both(
        "escalate-role",
        "create a Role with a permission that only an operator has",
        create,
        ROLE,
        build_object(
            ROLE,
            "thief",
            TENANT,
            rules=[
                {"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["patch"]}
            ],
        ),
        who=ADMIN,
        outcome=ESCALATION,
    ),
    both(
        "cluster-binding",
        "bind `cluster-admin` to oneself",
        create,
        CLUSTER_ROLE_BINDING,
        binding("", "cluster-admin", ADMIN),
        who=ADMIN,
    ),
)
"""Attempts of tenants at objects of others or of the cluster."""


def _announce(name: str, address: str = _TAKEN) -> Manifest:
    return service(type="LoadBalancer", metadata={"annotations": {name: address}})


def guard(id_: str, what: str, manifest: Manifest, control: str = "operator:ipam") -> Attempt:
    """Build an attempt that the admission policy of ipam refuses."""
    return both(id_, what, create, SERVICE, manifest, outcome=POLICY, control=control)


ADDRESSES: Final = (
    guard(
        "external-ips",
        "take an address of a pool with `externalIPs` of a Service",
        service(externalIPs=[_TAKEN]),
    ),
    guard(
        "load-balancer-ip",
        "take an address of a pool with `loadBalancerIP`",
        service(type="LoadBalancer", loadBalancerIP=_TAKEN),
    ),
    guard(
        "metallb",
        "take an address of a pool with an annotation of MetalLB",
        _announce("metallb.io/loadBalancerIPs"),
    ),
    guard(
        "cilium",
        "take an address of a pool with an annotation of Cilium",
        _announce("lbipam.cilium.io/ips"),
    ),
    Attempt(
        "mapped",
        _TITLES[EDITOR],
        "take an address of a pool in another spelling (`::ffff:203.0.113.7`)",
        POLICY,
        "an address outside of all pools, in its usual spelling",
        create(EDITOR, SERVICE, _announce("metallb.io/loadBalancerIPs", f"::ffff:{_TAKEN}")),
        create(EDITOR, SERVICE, _announce("metallb.io/loadBalancerIPs", "192.0.2.7")),
    ),
    guard(
        "label",
        "give a Service the label of Services of ipam, so that it is not checked",
        service(metadata={"labels": {"app.kubernetes.io/managed-by": "ipam"}}),
    ),
)
"""Attempts at the addresses of pools through Services."""


def as_operator(operator: str, id_: str, what: str, act: Any, *arguments: Any) -> Attempt:
    """Build an attempt of somebody who has taken over an operator's pod."""
    return both(id_, what, act, *arguments, who=f"operator:{operator}")


TAKEN_OVER: Final = (
    as_operator(
        "podset",
        "podset-home",
        "run a pod in `slipway-system` with the account of another operator",
        create,
        POD,
        pod(HOME, serviceAccountName="clusters"),
    ),
    as_operator(
        "podset",
        "podset-elsewhere",
        "run a pod in a namespace that is not watched",
        create,
        POD,
        pod(PEOPLE),
    ),
    as_operator(
        "clusters",
        "clusters-home",
        "read the Secrets of `slipway-system`",
        call,
        "GET",
        SECRET.path(HOME),
    ),
    as_operator(
        "clusters",
        "clusters-elsewhere",
        "read the Secrets of all namespaces",
        call,
        "GET",
        SECRET.path(""),
    ),
    as_operator(
        "compute",
        "compute-bind",
        "bind a role to itself in a watched namespace",
        create,
        ROLE_BINDING,
        binding(TENANT, "admin", EDITOR),
    ),
    as_operator(
        "jmxexporter",
        "jmx-home",
        "add a container to the pod of another operator",
        change,
        POD,
        build_object(
            POD, "operator", HOME, spec={"ephemeralContainers": [{"name": "x", "image": "b"}]}
        ),
        "ephemeralcontainers",
    ),
    as_operator(
        "network",
        "network-elsewhere",
        "attach machines of a namespace that is not watched to a bridge",
        create,
        NETWORK_ATTACHMENT_DEFINITION,
        build_object(NETWORK_ATTACHMENT_DEFINITION, "any", PEOPLE, spec={"config": "{}"}),
    ),
)
"""Attempts with the token of an operator: what `watch.namespaces` still prevents."""

STRANGERS: Final = (
    Attempt(
        "anonymous",
        "root of a machine of a cluster",
        "read Secrets of the management cluster without credentials",
        RBAC,
        "an editor of that namespace, with a token",
        read_as_stranger(""),
        call(EDITOR, "GET", SECRET.path(TENANT)),
    ),
    Attempt(
        "foreign-token",
        "root of a machine of a cluster",
        "read Secrets of the management cluster with a token of the guest cluster",
        STRANGER,
        "an editor of that namespace, with a token",
        read_as_stranger("eyJhbGciOiJub25lIn0.e30."),
        call(EDITOR, "GET", SECRET.path(TENANT)),
    ),
)
"""Attempts from guests at the API of the management cluster."""

API_ATTEMPTS: Final = (*ENTRY, *BEYOND, *ADDRESSES, *TAKEN_OVER, *STRANGERS)

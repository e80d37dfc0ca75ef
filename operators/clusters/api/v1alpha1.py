"""KubernetesCluster v1alpha1: a Kubernetes cluster made of Instances.

Nodes have fixed names, `<cluster>-<pool>-<slot>`, so that creating one is atomic: neither a stale
cache nor a second leader can create more nodes than the spec asks for. Fields that define how a
node is created (size, image) take effect when a node is created; image takes effect at a rebuild of
its disk as well. Labels and taints are applied to existing nodes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from libs.common.crd import (
    AGE,
    READY_COLUMN,
    Conditions,
    Count,
    CustomResource,
    DnsLabel,
    DnsSubdomain,
    Immutable,
    IntFormat,
    KubernetesModel,
    LabelMap,
    ListAtomic,
    ListMap,
    LocalObjectReference,
    ObjectStatus,
    Port,
    PrinterColumn,
    Rule,
    ShortText,
    kind_of,
)
from libs.common.kinds import Kind
from libs.contracts.disks import RootDiskTemplate
from libs.contracts.images import Image
from operators.clusters.api.reasons import ConditionType, Reason

GROUP: Final = "clusters.slipway.dev"
"""API group of the operator."""
CONTROL_PLANE: Final = "control-plane"
"""Name of the pool of the control plane."""
NAME_LIMIT: Final = 32
"""Longest name of a cluster: with pool and slot it becomes a host name."""
POOL_NAME_LIMIT: Final = 20
"""Longest name of a pool."""
OLDEST_MINOR: Final = 31
"""Oldest minor version of Kubernetes whose kubeadm reads the configuration of nodes."""
POOL_SIZE_LIMIT: Final = 100
"""Maximum number of nodes of one pool."""
NODES_SHOWN: Final = 20
"""Maximum number of nodes that an entry of `status.versions` lists."""
LEFTOVERS_SHOWN: Final = 20
"""Maximum number of objects that `status.leftovers` lists."""

Cidr = Annotated[
    str, Field(max_length=43), Rule("isCIDR(self)", "must be a block such as 10.244.0.0/16")
]
"""A block of addresses."""
Seconds = Annotated[int, IntFormat("int32"), Field(ge=0, le=86_400)]
"""A duration in seconds, at most one day."""


_MINOR: Final = "int({0}.split('.')[1])"
_PATCH: Final = "int({0}.split('.')[2].split('-')[0])"
_UPWARDS: Final = (
    "self == oldSelf || {minor} == {old_minor} + 1 || ({minor} == {old_minor} && ({patch} > "
    "{old_patch} || ({patch} == {old_patch} && oldSelf.contains('-') && (!self.contains('-') || "
    "self > oldSelf))))"
).format(
    minor=_MINOR.format("self"),
    old_minor=_MINOR.format("oldSelf"),
    patch=_PATCH.format("self"),
    old_patch=_PATCH.format("oldSelf"),
)
"""CEL rule that allows only upgrades of a version."""


class TaintEffect(StrEnum):
    """TaintEffect is what happens to pods that do not tolerate a taint."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Taint(KubernetesModel):
    """Taint repels pods that do not tolerate it from a node."""

    key: Annotated[
        str, Field(max_length=253, pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*)$")
    ]
    """key is the key of the taint."""
    value: Annotated[str, Field(max_length=63, pattern=r"^[-A-Za-z0-9_.]*$")] = ""
    """value is the value of the taint."""
    effect: TaintEffect
    """effect is NoSchedule, PreferNoSchedule or NoExecute."""

    def __str__(self) -> str:
        """Render as kubelet and kubectl do: `dedicated=gpu:NoSchedule`."""
        return f"{self.key}={self.value}:{self.effect}"


class Endpoint(KubernetesModel):
    """Endpoint is the address at which clients reach the API of the cluster."""

    pool_name: DnsSubdomain
    """poolName is the IPPool of the address. Immutable."""
    port: Annotated[Port, IntFormat("int32")] = 6443
    """port is the port of the API server. Immutable."""
    dns_names: Annotated[list[DnsSubdomain], ListAtomic(), Field(max_length=16), Immutable()] = []
    """dnsNames are further names of the API. The certificate of the API is valid for them, and the
    kubeconfig uses the first one. You publish them in your DNS. Immutable."""
    allowed_cidrs: Annotated[list[Cidr], ListAtomic(), Field(max_length=32)] = []
    """allowedCidrs are the addresses of clients that can reach the address of the API server. Needs
    a load balancer (setting `announcement` of ipam). Defaults to all addresses."""


class ControlPlane(
    KubernetesModel,
    rules=(
        Rule(
            "self.count >= oldSelf.count", "count can grow but not shrink: etcd would lose members"
        ),
        Rule("self.count in [1, 3, 5]", "count must be 1, 3 or 5: etcd needs a majority"),
        Rule(
            "self.endpoint.poolName == oldSelf.endpoint.poolName && "
            "self.endpoint.port == oldSelf.endpoint.port",
            "endpoint.poolName and endpoint.port are immutable: certificates contain them",
        ),
    ),
):
    """ControlPlane describes the nodes that run the API server, etcd and the controllers."""

    count: Annotated[int, IntFormat("int32"), Field(ge=1, le=5)] = 1
    """count is 1, 3 or 5; it can grow but not shrink. With 1, the data of the cluster is on one
    disk only."""
    size: DnsSubdomain
    """size is the InstanceSize of new nodes."""
    image: Image | None = None
    """image is the disk image of these nodes. Defaults to the image of the cluster."""
    root_disk: RootDiskTemplate | None = None
    """rootDisk describes the storage of the disks of new nodes."""
    endpoint: Endpoint
    """endpoint is the address of the API server."""


class Pool(KubernetesModel):
    """Pool is a group of identical nodes."""

    name: Annotated[
        DnsLabel,
        Field(max_length=POOL_NAME_LIMIT),
        Rule(f"self != '{CONTROL_PLANE}'", f"{CONTROL_PLANE} is reserved for the control plane"),
    ]
    """name is the name of the pool, unique in the cluster. The names of its nodes contain it."""
    count: Annotated[int, IntFormat("int32"), Field(ge=0, le=POOL_SIZE_LIMIT)]
    """count is the number of nodes. When it shrinks, the nodes with the highest numbers are drained
    and deleted first."""
    size: DnsSubdomain
    """size is the InstanceSize of new nodes."""
    image: Image | None = None
    """image is the disk image of these nodes. Defaults to the image of the cluster."""
    root_disk: RootDiskTemplate | None = None
    """rootDisk describes the storage of the disks of new nodes."""
    labels: LabelMap = {}
    """labels are set on the nodes of the pool, including nodes that exist. A label that is removed
    here is removed from the nodes. Labels that others set are kept."""
    taints: Annotated[list[Taint], ListAtomic(), Field(max_length=16)] = []
    """taints are set on the nodes of the pool, including nodes that exist. A taint that is removed
    here is removed from the nodes. Taints that others set are kept."""
    drain_seconds: Seconds = 300
    """drainSeconds is the time that pods have to leave a node before it is deleted anyway. With 0
    the node is deleted immediately, even while the API of the cluster does not respond."""


class LoadBalancers(KubernetesModel):
    """LoadBalancers gives public addresses to Services of type LoadBalancer in the cluster."""

    pool_name: DnsSubdomain
    """poolName is the IPPool of new addresses."""
    limit: Annotated[int, IntFormat("int32"), Field(ge=1, le=50)] = 10
    """limit is the maximum number of Services that get an address. Services keep their addresses
    when it is lowered. Defaults to 10."""


class IngressRule(KubernetesModel):
    """IngressRule opens ports of the nodes of the pools, such as node ports."""

    name: Annotated[DnsLabel, Field(max_length=40)]
    """name is the name of the rule, unique in the cluster."""
    protocol: Annotated[str, Field(max_length=4, pattern="^(TCP|UDP|SCTP)$")] = "TCP"
    """protocol is TCP, UDP or SCTP. Defaults to TCP."""
    ports: Annotated[list[Port], ListAtomic(), Field(min_length=1, max_length=16)]
    """ports are the ports of the nodes."""
    cidrs: Annotated[list[Cidr], ListAtomic(), Field(max_length=64)] = []
    """cidrs are the addresses at the other end. Defaults to all addresses."""


class Health(KubernetesModel):
    """Health defines when a node counts as broken, and how many broken nodes are rebuilt."""

    node_startup_seconds: Annotated[Seconds, Field(ge=60)] = 1200
    """nodeStartupSeconds is the time that a node can take to become ready after its machine
    started."""
    unhealthy_seconds: Annotated[Seconds, Field(ge=30)] = 300
    """unhealthySeconds is the time for which a node may be not ready before it counts as broken."""
    max_unhealthy: Count = 1
    """maxUnhealthy is the maximum number of broken nodes: if more nodes of the pools are broken,
    none is rebuilt. 0 disables rebuilds. Nodes are rebuilt one at a time."""


class Recycle(KubernetesModel):
    """Recycle is a request to drain and rebuild a node once."""

    node: DnsLabel
    """node is the name of a node of a pool."""
    token: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9._-]+$")]
    """token is any text; change it to request another rebuild."""


class Addon(KubernetesModel):
    """Addon is a set of manifests that is applied through the API of the cluster."""

    name: DnsLabel
    """name identifies the addon."""
    config_map_ref: LocalObjectReference
    """configMapRef names a ConfigMap whose values are manifests as YAML. It must have the label
    clusters.slipway.dev/addon=true."""


class KubernetesClusterSpec(
    KubernetesModel,
    rules=(
        Rule(
            "self.version == oldSelf.version || self.controlPlane.count >= 3",
            "version can change if controlPlane.count is 3 or 5: a node is upgraded by a rebuild, "
            "and the disk of the only node of a control plane has the data of the cluster",
        ),
    ),
):
    """KubernetesClusterSpec is the desired state of a cluster."""

    version: Annotated[
        str,
        Field(max_length=32, pattern=r"^v1\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$"),
        Rule(
            _UPWARDS,
            "version goes up, by one minor version at most: upgrade from v1.34 to v1.36 in two "
            "steps, and never to an older version",
        ),
        Rule(
            "!self.matches('^v1[.]([0-9]|[12][0-9]|30)[.]')",
            f"version must be v1.{OLDEST_MINOR}.0 or newer: nodes are configured by "
            "kubeadm.k8s.io/v1beta4",
        ),
    ]
    """version is the Kubernetes version, such as v1.34.2. The images must have its kubeadm and
    kubelet. It can go up by one minor version at a time, for a control plane of three or five
    nodes; change the images in the same edit. Nodes are then rebuilt one at a time, beginning with
    the control plane."""
    image: Image
    """image is the disk image of the nodes. It must contain containerd, kubeadm and kubelet."""
    network_ref: Annotated[LocalObjectReference, Immutable()]
    """networkRef names the Network of the nodes. Immutable."""
    pod_cidr: Annotated[Cidr, Immutable()] = "10.244.0.0/16"
    """podCidr is the address block of pods. Immutable."""
    service_cidr: Annotated[Cidr, Immutable()] = "10.96.0.0/16"
    """serviceCidr is the address block of Services. Immutable."""
    control_plane: ControlPlane
    """controlPlane describes the nodes that run the API server, etcd and the controllers of
    Kubernetes."""
    pools: Annotated[list[Pool], ListMap("name"), Field(max_length=16)] = []
    """pools are the groups of nodes that run your pods."""
    load_balancers: LoadBalancers | None = None
    """loadBalancers gives public addresses to Services of type LoadBalancer in the cluster that
    have no loadBalancerClass. When it is removed, the addresses are released. Defaults to none."""
    ingress_rules: Annotated[list[IngressRule], ListMap("name"), Field(max_length=16)] = []
    """ingressRules open ports of the nodes of the pools. Defaults to none."""
    health: Health = Health()
    """health defines when a node counts as broken, and how many broken nodes are rebuilt."""
    addons: Annotated[list[Addon], ListMap("name"), Field(max_length=16)] = []
    """addons are applied when the API of the cluster responds, and again when they change.
    The network plugin of the cluster is one of them. Objects stay when an addon is removed."""
    recycle: Annotated[list[Recycle], ListMap("node"), Field(max_length=16)] = []
    """recycle lists nodes that the operator drains and rebuilds, one after the other, once for each
    token."""

    def pool(self, name: str) -> Pool | None:
        """Return a pool by name, or None."""
        return next((each for each in self.pools if each.name == name), None)


class PoolStatus(KubernetesModel):
    """PoolStatus counts the nodes of a pool."""

    name: DnsLabel
    """name is the name of the pool."""
    desired: Count = 0
    """desired is the number that the spec asks for."""
    current: Count = 0
    """current is the number of existing Instances."""
    ready: Count = 0
    """ready is the number of nodes that are known to be ready. It is 0 while the API of the cluster
    does not respond."""


class NodeVersion(KubernetesModel):
    """NodeVersion lists the nodes that have one version."""

    version: Annotated[str, Field(max_length=64)]
    """version is the version of the kubelets."""
    count: Count = 0
    """count is the number of nodes that have it."""
    nodes: Annotated[list[DnsLabel], ListAtomic(), Field(max_length=NODES_SHOWN)] = []
    """nodes are names of nodes that have it, 20 at most."""


class Counts(KubernetesModel):
    """Counts sum up the nodes, for columns."""

    desired: Count = 0
    """desired is the number that the spec asks for."""
    ready: Count = 0
    """ready is the number of nodes that are known to be ready. It is 0 while the API of the cluster
    does not respond."""
    summary: Annotated[str, Field(max_length=16)] = ""
    """summary shows both numbers, such as 3/3, or ?/3 while the API does not respond."""


class KubernetesClusterStatus(ObjectStatus):
    """KubernetesClusterStatus is the observed state of a cluster."""

    conditions: Conditions = []
    """conditions report whether the cluster matches the spec, and why not."""
    endpoint: Annotated[str, Field(max_length=64)] | None = None
    """endpoint is the address and port of the API server, such as 203.0.113.7:6443."""
    kubeconfig_secret_name: DnsSubdomain | None = None
    """kubeconfigSecretName is the Secret whose key value is a kubeconfig for administrators."""
    control_plane: Counts = Counts()
    """controlPlane counts the nodes of the control plane."""
    nodes: Counts = Counts()
    """nodes counts the nodes of all pools."""
    pools: Annotated[list[PoolStatus], ListMap("name"), Field(max_length=32)] = []
    """pools counts the nodes of each pool."""
    version: Annotated[str, Field(max_length=32, pattern=r"^v1\.[0-9]+\.[0-9]+.*$")] | None = None
    """version is the oldest version that a node has."""
    versions: Annotated[list[NodeVersion], ListMap("version"), Field(max_length=8)] = []
    """versions lists the nodes by version, oldest version first."""
    leftovers: Annotated[list[ShortText], ListAtomic(), Field(max_length=LEFTOVERS_SHOWN)] = []
    """leftovers lists objects that remain to be deleted while the cluster is being deleted."""


class KubernetesCluster(
    CustomResource,
    group=GROUP,
    version="v1alpha1",
    plural="kubernetesclusters",
    short_names=("k8s",),
    categories=("slipway",),
    columns=(
        PrinterColumn("Version", "string", ".spec.version"),
        PrinterColumn("Current", "string", ".status.version", priority=1),
        PrinterColumn("Endpoint", "string", ".status.endpoint"),
        PrinterColumn("Control-Plane", "string", ".status.controlPlane.summary"),
        PrinterColumn("Nodes", "string", ".status.nodes.summary"),
        READY_COLUMN,
        PrinterColumn("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason'),
        PrinterColumn(
            "API", "string", '.status.conditions[?(@.type=="APIReachable")].status', priority=1
        ),
        PrinterColumn(
            "Message", "string", '.status.conditions[?(@.type=="Ready")].message', priority=1
        ),
        AGE,
    ),
    rules=(
        Rule(
            f"self.metadata.name.size() <= {NAME_LIMIT} && "
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            f"the name becomes a part of host names: use at most {NAME_LIMIT} lower-case letters,"
            " digits and dashes, starting with a letter",
        ),
        Rule(
            "self.spec.version == oldSelf.spec.version || !has(self.status) || "
            "!has(self.status.version) || "
            + _MINOR.format("self.spec.version")
            + " <= "
            + _MINOR.format("self.status.version")
            + " + 1",
            "spec.version can be one minor version newer than status.version: wait until every node"
            " has the previous version (condition UpToDate)",
        ),
    ),
    conditions=ConditionType,
    reasons=Reason,
):
    """KubernetesCluster is a Kubernetes cluster whose nodes are Instances."""

    spec: KubernetesClusterSpec
    """spec is the desired state of the cluster."""
    status: KubernetesClusterStatus | None = None
    """status is the observed state of the cluster."""

    @property
    def observed(self) -> KubernetesClusterStatus:
        """The status, or an empty status if there is none yet."""
        return self.status or KubernetesClusterStatus()


KUBERNETES_CLUSTER: Final[Kind] = kind_of(KubernetesCluster)
"""The kind as a value, for the client and the generator."""

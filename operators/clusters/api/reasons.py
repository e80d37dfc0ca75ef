"""Conditions and reasons of a KubernetesCluster."""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Conditions of a KubernetesCluster."""

    READY = "Ready"
    """Ready is True when the cluster matches its spec, and all of its nodes are ready."""
    INITIALIZED = "Initialized"
    """Initialized is True once the API of the cluster has responded; it never becomes False again.
    From then on no node initializes a new cluster."""
    NETWORK_READY = "NetworkReady"
    """NetworkReady is True if the Network gives each guest an address by which other nodes reach
    it, and nodes are registered with the addresses of their machines."""
    ENDPOINT_READY = "EndpointReady"
    """EndpointReady is True if the address of the API is announced and routed to a node of the
    control plane."""
    CONTROL_PLANE_READY = "ControlPlaneReady"
    """ControlPlaneReady is True when every node of the control plane is ready."""
    CONTROL_PLANE_SPREAD = "ControlPlaneSpread"
    """ControlPlaneSpread is True if no host runs so many nodes of the control plane that etcd loses
    its majority with it. A control plane of one node does not have it."""
    NODES_READY = "NodesReady"
    """NodesReady is True when each pool has the desired number of nodes, and all of them are
    ready."""
    API_REACHABLE = "APIReachable"
    """APIReachable is True when the API of the cluster responds to the operator. While it is False,
    the operator judges nodes by their Instances alone and does not drain, rebuild or remove any."""
    ADDONS_APPLIED = "AddonsApplied"
    """AddonsApplied is True if the present content of each of spec.addons was applied through the
    API of the cluster. A cluster without addons does not have it."""
    LOAD_BALANCERS_READY = "LoadBalancersReady"
    """LoadBalancersReady is True if the addresses of all Services of type LoadBalancer in the
    cluster route traffic to them. A cluster without spec.loadBalancers does not have it."""
    REMEDIATING = "Remediating"
    """Remediating is True while a broken node is being rebuilt; if a broken node is not rebuilt,
    the reason says why."""
    UP_TO_DATE = "UpToDate"
    """UpToDate is True if every node has the version spec.version. While it is False the message
    reports the progress of the upgrade, what it waits for and what to do."""
    CERTIFICATES_EXPIRING = "CertificatesExpiring"
    """CertificatesExpiring is True if the certificate that the API of the cluster serves, or one of
    the authorities of the cluster, expires within 90 days."""
    TERMINATING = "Terminating"
    """Terminating is True while a deleted cluster waits; the message says what is left."""


class Reason(StrEnum):
    """Reasons of the conditions and events of a KubernetesCluster."""

    AVAILABLE = "Available"
    """Available means that the cluster matches its spec."""
    NETWORK_MISSING = "NetworkMissing"
    """NetworkMissing means that the Network which spec.networkRef names does not exist."""
    NETWORK_UNSUITABLE = "NetworkUnsuitable"
    """NetworkUnsuitable means that guests of the Network do not have addresses that nodes can use;
    nothing is created. The message says what to change."""
    ADDRESS_MISMATCH = "AddressMismatch"
    """AddressMismatch means that a node is registered with an address that its machine does not
    have; the message names it."""
    ADDRESS_OVERLAP = "AddressOverlap"
    """AddressOverlap means that spec.podCidr or spec.serviceCidr contains addresses of machines, so
    nodes cannot reach each other. The message names the field to change."""
    WAITING_FOR_ADDRESS = "WaitingForAddress"
    """WaitingForAddress means that the IPClaim of the endpoint has no address yet."""
    ADDRESS_CHANGED = "AddressChanged"
    """AddressChanged means that the IPClaim has another address than the one with which the cluster
    was created, for example after a restore without the ledger; the message says what to do."""
    WAITING_FOR_CONTROL_PLANE = "WaitingForControlPlane"
    """WaitingForControlPlane means that the first node of the control plane is not ready yet."""
    CONTROL_PLANE_LOST = "ControlPlaneLost"
    """ControlPlaneLost means that no node of the control plane is left, so that the data of the
    cluster is lost. The operator does not recreate the nodes: that would create an empty cluster
    with the old name."""
    NODES_MISSING = "NodesMissing"
    """NodesMissing means that nodes are being created."""
    NODES_NOT_READY = "NodesNotReady"
    """NodesNotReady means that nodes exist but are not ready; the message names them."""
    INSTANCES_RUNNING = "InstancesRunning"
    """InstancesRunning means that the machines run; whether their nodes are ready cannot be seen,
    since the API of the cluster does not respond."""
    REACHABLE = "Reachable"
    """Reachable means that the API of the cluster responds."""
    UNREACHABLE = "Unreachable"
    """Unreachable means that the API of the cluster does not respond."""
    NOT_ASKED = "NotAsked"
    """NotAsked means that the cluster has no API to query yet."""
    CREATED = "Created"
    """Created means that an object was created."""
    APPLIED = "Applied"
    """Applied means that an object was created, or a change by somebody else was reverted."""
    ADOPTED = "Adopted"
    """Adopted means that the objects of an earlier cluster with this name, such as from a backup,
    belong to this one."""
    RENEWED = "Renewed"
    """Renewed means that a certificate was renewed before it expired."""
    SHARED_HOST = "SharedHost"
    """SharedHost means that etcd loses its majority if the host that the message names is lost."""
    DRAINING = "Draining"
    """Draining means that pods are being evicted from a node that will be deleted or rebuilt."""
    DRAIN_TIMED_OUT = "DrainTimedOut"
    """DrainTimedOut means that pods were still on a node when drainSeconds had passed."""
    DELETING_NODE = "DeletingNode"
    """DeletingNode means that a node is being removed: its pool has become smaller."""
    UNCORDONED = "Uncordoned"
    """Uncordoned means that pods can be scheduled to a node again."""
    REBUILDING = "Rebuilding"
    """Rebuilding means that a broken node gets a new disk by an Operation."""
    RECYCLING = "Recycling"
    """Recycling means that a node gets a new disk by an Operation, as spec.recycle asks."""
    RECYCLED = "Recycled"
    """Recycled means that a node was rebuilt as spec.recycle asked, or that this failed."""
    EVACUATING = "Evacuating"
    """Evacuating means that a node leaves a host that is being drained, by an Operation."""
    UPGRADING = "Upgrading"
    """Upgrading means that nodes are rebuilt one at a time to get the version spec.version."""
    UPGRADE_WAITING = "UpgradeWaiting"
    """UpgradeWaiting means that the next node cannot be upgraded yet; the message says why and what
    to do."""
    UPGRADE_FAILED = "UpgradeFailed"
    """UpgradeFailed means that a node was rebuilt and does not have the version spec.version; no
    other node is upgraded until the image in the spec changes or the Operation is deleted."""
    VERSION_UNKNOWN = "VersionUnknown"
    """VersionUnknown means that the versions of nodes cannot be read."""
    VERSION_SET = "VersionSet"
    """VersionSet means that the operator wrote the version into the kubeadm configuration of the
    cluster."""
    MEMBER_REMOVED = "MemberRemoved"
    """MemberRemoved means that a member was removed from etcd, because its node is replaced."""
    HEALTHY = "Healthy"
    """Healthy means that no node is broken."""
    BUDGET_EXCEEDED = "BudgetExceeded"
    """BudgetExceeded means that more nodes are broken than spec.health.maxUnhealthy, so the cause
    is probably outside of the nodes; nothing is rebuilt."""
    REBUILD_FAILED = "RebuildFailed"
    """RebuildFailed means that the Operation on a broken node failed, or that the node was rebuilt
    several times and never became ready; the message says what to do."""
    CONTROL_PLANE_BROKEN = "ControlPlaneBroken"
    """ControlPlaneBroken means that a node of the control plane is broken and cannot be replaced;
    the message says why. The only node of a control plane is never rebuilt, because it holds the
    only copy of the data of the cluster."""
    SERVICES_WAITING = "ServicesWaiting"
    """ServicesWaiting means that a Service of the cluster has no address that routes traffic to it;
    the message names the Service and says why. The Service has the same message in its status."""
    ADDRESS_RELEASED = "AddressReleased"
    """AddressReleased means that the address of a Service of the cluster was released, because the
    Service no longer needs it."""
    NAME_TAKEN = "NameTaken"
    """NameTaken means that an object that the operator does not own has a name that it needs."""
    APPLYING = "Applying"
    """Applying means that an addon is about to be applied."""
    ADDON_MISSING = "AddonMissing"
    """AddonMissing means that the ConfigMap of an addon does not exist or does not have the label
    clusters.slipway.dev/addon=true."""
    ADDON_FAILED = "AddonFailed"
    """AddonFailed means that an object of an addon could not be applied; the message says why. The
    operator tries again."""
    EXPIRING = "Expiring"
    """Expiring means that a certificate expires within 90 days; the message says which one and how
    to renew it."""
    VALID = "Valid"
    """Valid means that no certificate expires within 90 days."""
    NOT_CHECKED = "NotChecked"
    """NotChecked means that the API of the cluster has not shown its certificate."""
    BOOTSTRAP_TIMED_OUT = "BootstrapTimedOut"
    """BootstrapTimedOut means that the first machine of the control plane has been running for
    longer than spec.health.nodeStartupSeconds and the API of the cluster has never responded."""
    PKI_LOST = "PKILost"
    """PKILost means that the Secret with the certificate authorities is missing or invalid while
    the cluster exists; restore it."""
    WRITE_REFUSED = "WriteRefused"
    """WriteRefused means that the API server refused a change; the message says why."""
    API_MISSING = "APIMissing"
    """APIMissing means that a required operator is not installed; the message names it."""
    TERMINATING = "Terminating"
    """Terminating means that the cluster is being deleted."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""

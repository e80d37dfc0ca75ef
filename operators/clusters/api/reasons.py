"""Conditions and reasons of a KubernetesCluster."""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Conditions of a KubernetesCluster."""

    READY = "Ready"
    """Ready is True when the cluster is as its spec asks, and all of its nodes are ready."""
    INITIALIZED = "Initialized"
    """Initialized is True once the API of the cluster has answered; it never becomes False again,
    and no node begins a cluster of its own from then on."""
    ENDPOINT_READY = "EndpointReady"
    """EndpointReady is True when the address of the API leads to a control plane that is ready."""
    CONTROL_PLANE_READY = "ControlPlaneReady"
    """ControlPlaneReady is True when every node of the control plane is ready."""
    NODES_READY = "NodesReady"
    """NodesReady is True when each pool has the nodes that it asks for, and all are ready."""
    API_REACHABLE = "APIReachable"
    """APIReachable is True when the API of the cluster answers the operator. While it is False
    nodes are judged by their Instances alone, and none is drained, rebuilt or removed."""
    REMEDIATING = "Remediating"
    """Remediating is True while a broken node is being rebuilt; the reason tells why a broken node
    is not."""
    TERMINATING = "Terminating"
    """Terminating is True while a deleted cluster waits; the message says what is left."""


class Reason(StrEnum):
    """Reasons of the conditions and events of a KubernetesCluster."""

    AVAILABLE = "Available"
    """Available means that everything is as it is to be."""
    WAITING_FOR_ADDRESS = "WaitingForAddress"
    """WaitingForAddress means that the IPClaim of the endpoint has no address yet."""
    WAITING_FOR_CONTROL_PLANE = "WaitingForControlPlane"
    """WaitingForControlPlane means that the first node of the control plane is on its way."""
    CONTROL_PLANE_LOST = "ControlPlaneLost"
    """ControlPlaneLost means that no node of the control plane is left, and the data of the cluster
    is gone with it. None is made anew: that would be an empty cluster under the old name."""
    NODES_MISSING = "NodesMissing"
    """NodesMissing means that nodes are being made."""
    NODES_NOT_READY = "NodesNotReady"
    """NodesNotReady means that nodes are there, and not ready; the message names them."""
    INSTANCES_RUNNING = "InstancesRunning"
    """InstancesRunning means that the machines run; whether their nodes are ready cannot be seen,
    since the API of the cluster does not answer."""
    REACHABLE = "Reachable"
    """Reachable means that the API of the cluster answers."""
    UNREACHABLE = "Unreachable"
    """Unreachable means that the API of the cluster does not answer."""
    NOT_ASKED = "NotAsked"
    """NotAsked means that there is nothing to ask yet."""
    CREATED = "Created"
    """Created means that an object was made."""
    APPLIED = "Applied"
    """Applied means that an object was made, or brought back in line."""
    RENEWED = "Renewed"
    """Renewed means that a certificate was made anew before it ran out."""
    DRAINING = "Draining"
    """Draining means that pods are being moved off a node that is to go or to be rebuilt."""
    DRAIN_TIMED_OUT = "DrainTimedOut"
    """DrainTimedOut means that pods were left on a node when its time to drain was over."""
    DELETING_NODE = "DeletingNode"
    """DeletingNode means that a node is being removed: its pool has become smaller."""
    UNCORDONED = "Uncordoned"
    """Uncordoned means that a node takes pods again."""
    REBUILDING = "Rebuilding"
    """Rebuilding means that a broken node gets a new disk by an Operation."""
    RECYCLING = "Recycling"
    """Recycling means that a node gets a new disk by an Operation, as spec.recycle asks."""
    RECYCLED = "Recycled"
    """Recycled means that a node was rebuilt as spec.recycle asked, or that this failed."""
    HEALTHY = "Healthy"
    """Healthy means that no node is broken."""
    BUDGET_EXCEEDED = "BudgetExceeded"
    """BudgetExceeded means that more nodes are broken than spec.health.maxUnhealthy, so that the
    fault is more likely outside of them; nothing is rebuilt."""
    REBUILD_FAILED = "RebuildFailed"
    """RebuildFailed means that the Operation on a broken node failed; it is tried again when that
    Operation is deleted."""
    CONTROL_PLANE_BROKEN = "ControlPlaneBroken"
    """ControlPlaneBroken means that a node of the control plane is broken; those are never rebuilt
    by the operator, since they hold the data of the cluster."""
    NAME_TAKEN = "NameTaken"
    """NameTaken means that an object of somebody else has a name that is needed."""
    PKI_LOST = "PKILost"
    """PKILost means that the Secret with the certificate authorities is gone or broken while the
    cluster lives; restore it."""
    WRITE_REFUSED = "WriteRefused"
    """WriteRefused means that the API server refused a change; the message says why."""
    API_MISSING = "APIMissing"
    """APIMissing means that an operator which is needed is not installed; the message names it."""
    TERMINATING = "Terminating"
    """Terminating means that the cluster is being deleted."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""

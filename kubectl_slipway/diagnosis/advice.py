"""What to do about a reason: data by kind and reason; an empty kind holds for all kinds.

Only reasons whose remedy is not in the documentation of the reason itself (`kinds.json`).
"""

from __future__ import annotations

ADVICE: dict[tuple[str, str], str] = {
    ("", "InvalidSpec"): "Correct the field that the message names.",
    ("", "NameTaken"): "Rename this object, or delete the other object if nobody needs it.",
    ("", "WriteRefused"): "Check quotas, admission policies and the permissions of the operator.",
    ("", "WriteFailed"): "Check quotas, admission policies and the permissions of the operator.",
    ("DemoVolume", "Provisioning"): (
        "Check the claim and its StorageClass: kubectl describe pvc -n {namespace}"
    ),
    ("DemoVolume", "Conflict"): "Rename the DemoVolume, or delete the claim of that name.",
    ("DemoVolume", "UnownedClaim"): (
        "Set spec.adopt to take the claim over, rename the DemoVolume, or delete the claim."
    ),
    ("Firewall", "NetworkNotFound"): "Create the Network that spec.networkRef names.",
    ("Firewall", "Unenforceable"): (
        "status.unenforceable lists the rules. Express them with TCP, UDP or SCTP ports."
    ),
    ("IPClaim", "AddressOutOfRange"): "Change spec.address, or add it to the pool.",
    ("IPClaim", "AddressQuarantined"): "Wait until the address is free, or remove spec.address.",
    ("IPClaim", "AddressTaken"): (
        "Change or remove spec.address. `kubectl slipway ip who ADDRESS` shows who has it."
    ),
    ("IPClaim", "NamespaceNotAllowed"): (
        "Ask an administrator to add the namespace to spec.allowedNamespaces of the pool."
    ),
    ("IPClaim", "PoolDraining"): "Use another pool, or set spec.allocation of the pool to Enabled.",
    ("IPClaim", "PoolExhausted"): (
        "Add addresses to spec.addresses of the pool, or delete IPClaims that are not needed: "
        "kubectl slipway ip pools"
    ),
    ("IPClaim", "PoolNotFound"): "Create the IPPool, or change spec.poolRef.",
    ("IPClaim", "QuotaExceeded"): (
        "Delete IPClaims of the namespace, or raise spec.quotaPerNamespace of the pool."
    ),
    ("IPClaim", "StillAssigned"): "Remove spec.target, or set spec.deletionPolicy to Release.",
    ("IPClaim", "TargetNotFound"): "Create the object that spec.target names, or correct the name.",
    ("IPClaim", "WaitingForLoadBalancer"): (
        "Install a load balancer such as MetalLB, and add the address to one of its pools."
    ),
    (
        "IPPool",
        "AddressesInUse",
    ): "Delete the IPClaims of the pool: kubectl slipway tree IPPool/{name}",
    ("IPPool", "Draining"): "Set spec.allocation to Enabled, or use another pool.",
    ("IPPool", "NoAddresses"): "Change spec.addresses or spec.excluded.",
    ("IPPool", "NoneFree"): "Add addresses to spec.addresses, or delete IPClaims.",
    ("Instance", "APIMissing"): "Install KubeVirt and CDI: kubectl slipway check",
    ("Instance", "AddressPending"): "kubectl get ipclaims -n {namespace}",
    ("Instance", "CrashLoop"): (
        "Look at the console of the guest (virtctl console {name} -n {namespace}), or boot a "
        "rescue image: kubectl slipway vm rescue {name}"
    ),
    ("Instance", "FirewallMissing"): "Create the Firewall that spec.firewallRef names.",
    ("Instance", "GuestShutDown"): "kubectl slipway vm start {name}",
    (
        "Instance",
        "ImportFailed",
    ): "Check that spec.image can be downloaded from within the cluster.",
    (
        "Instance",
        "ImportRetrying",
    ): "Check that spec.image can be downloaded from within the cluster.",
    ("Instance", "NetworkMissing"): "Create the Network that spec.networkRef names.",
    ("Instance", "NodeSilent"): (
        "Check the node. If it is gone for good, delete its Node object; the machine then starts "
        "on another node."
    ),
    ("Instance", "RestartRequired"): "kubectl slipway vm reboot {name}",
    ("Instance", "SizeMissing"): "Create the InstanceSize, or change spec.size.",
    ("KubernetesCluster", "APIMissing"): "Install the operator that the message names.",
    ("KubernetesCluster", "BudgetExceeded"): (
        "Check the network and storage of all nodes. Raise spec.health.maxUnhealthy if the nodes "
        "broke independently."
    ),
    ("KubernetesCluster", "ControlPlaneLost"): "Restore etcd from a backup into a new cluster.",
    ("KubernetesCluster", "Unreachable"): (
        "Check the machines of the control plane: kubectl slipway tree KubernetesCluster/{name}"
    ),
    ("Network", "InUse"): "Delete the Instances and Firewalls that name the Network.",
    ("Network", "MultusMissing"): "Install Multus, or use another backend.",
    ("Operation", "Busy"): "Try again later, or set spec.queue to Wait.",
    ("Operation", "DeadlineExceeded"): "Create the Operation again with a higher timeoutSeconds.",
    ("Operation", "NotRunning"): "Start the machine first.",
    (
        "Operation",
        "Queued",
    ): "kubectl get operations -n {namespace} shows the Operations before it.",
    ("Operation", "RollbackFailed"): "All disks are kept. Look at the Instance of the Operation.",
    ("Operation", "TargetNotFound"): "Check the name of the Instance in spec.targetRef.",
    ("PodSet", "Conflict"): "Rename the PodSet, or delete the pod of that name.",
    ("PrometheusJmxExporter", "ConfigMissing"): "Create the ConfigMap that spec.config names.",
    ("PrometheusJmxExporter", "NoPods"): (
        "Compare spec.labelSelector with the labels of your pods: kubectl get pods -n {namespace} "
        "--show-labels"
    ),
    ("PrometheusJmxExporter", "TargetsFailed"): (
        "status.failures has the cause per container: kubectl slipway jmx scan {name}"
    ),
    ("PulsarConsumer", "EngineMissing"): "Install KEDA, or set spec.autoscaling.engine to Native.",
}
"""Remedy by kind and reason; {name} and {namespace} are those of the object."""

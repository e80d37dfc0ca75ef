"""Remedies for Instances, their Operations, and clusters of them."""

from __future__ import annotations

MACHINE_ADVICE: dict[tuple[str, str], str] = {
    ("Instance", "APIMissing"): "Install KubeVirt and CDI: kubectl slipway check",
    ("Instance", "AddressNotRouted"): "Check the IPClaim: kubectl get ipclaims -n {namespace}",
    ("Instance", "AddressPending"): "kubectl get ipclaims -n {namespace}",
    ("Instance", "AgentLost"): (
        "Look at the console of the guest: virtctl console {name} -n {namespace}"
    ),
    ("Instance", "ClaimElsewhere"): (
        "Change spec.target of the IPClaim, or name another IPClaim in spec.publicIP."
    ),
    ("Instance", "ClaimMissing"): "Create the IPClaim that spec.publicIP names.",
    ("Instance", "Conflict"): "Use another name for the Instance.",
    ("Instance", "CrashLoop"): (
        "Look at the console of the guest (virtctl console {name} -n {namespace}), or boot a "
        "rescue image: kubectl slipway vm rescue {name}"
    ),
    ("Instance", "FirewallMissing"): "Create the Firewall that spec.firewallRef names.",
    ("Instance", "FirewallPending"): "Check the Firewall: kubectl get firewalls -n {namespace}",
    ("Instance", "GuestShutDown"): "kubectl slipway vm start {name}",
    ("Instance", "HotplugBlocked"): "kubectl slipway vm reboot {name}",
    ("Instance", "HotplugRefused"): "kubectl slipway vm reboot {name}",
    ("Instance", "ImportFailed"): (
        "Check that spec.image can be downloaded from within the cluster."
    ),
    ("Instance", "ImportRetrying"): (
        "Check that spec.image can be downloaded from within the cluster."
    ),
    ("Instance", "NetworkMissing"): "Create the Network that spec.networkRef names.",
    ("Instance", "NetworkNotReady"): (
        "Check the Network: kubectl get networks.network.slipway.dev -n {namespace}"
    ),
    ("Instance", "NoAgent"): "Install qemu-guest-agent in the guest.",
    ("Instance", "DiskDiffers"): "Correct the spec, or replace the disk with an Operation Rebuild.",
    ("Instance", "NodeSilent"): (
        "Repair the node. If it is certain that it is off: kubectl taint node NODE "
        "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    ),
    ("Instance", "NotMigratable"): (
        "Remove what the message names if the machine has to move without a shutdown."
    ),
    ("Instance", "Paused"): "virtctl unpause vm {name} -n {namespace}",
    ("Instance", "ProbeFailed"): (
        "Check in the guest what spec.readinessProbe asks for: virtctl console {name} -n "
        "{namespace}"
    ),
    ("Instance", "RestartRequired"): "kubectl slipway vm reboot {name}",
    ("Instance", "InstancetypeMissing"): (
        "Create the instancetype, or change spec.instancetype. List them: kubectl get "
        "virtualmachineclusterinstancetypes"
    ),
    ("Instance", "PreferenceMissing"): (
        "Create the preference, or change spec.preference. List them: kubectl get "
        "virtualmachineclusterpreferences"
    ),
    ("Instance", "SizeMissing"): "Create the InstanceSize, or change spec.size.",
    ("Instance", "UserDataMissing"): "Create the Secret, or change spec.userDataSecretName.",
    ("Instance", "StartFailed"): (
        "Correct what the message names: kubectl describe vm {name} -n {namespace}"
    ),
    ("Instance", "Stopped"): "kubectl slipway vm start {name}",
    ("Instance", "VolumeNotReady"): (
        "Create the volume that the message names, or remove it from spec.volumes."
    ),
    ("Instance", "WaitingForProbe"): (
        "Check in the guest what spec.readinessProbe asks for: virtctl console {name} -n "
        "{namespace}"
    ),
    ("KubernetesCluster", "APIMissing"): "Install the operator that the message names.",
    ("KubernetesCluster", "AddonFailed"): "Correct the object in the ConfigMap of the addon.",
    ("KubernetesCluster", "AddonMissing"): (
        "Create the ConfigMap, or set its label clusters.slipway.dev/addon=true."
    ),
    ("KubernetesCluster", "AddressChanged"): (
        "Release the former address if another claim has it, then: kubectl delete ipclaim "
        "{name}-api -n {namespace}"
    ),
    ("KubernetesCluster", "AddressMismatch"): (
        "Use an image whose guests have only the address of their machine, and set spec.recycle"
        " to rebuild the node."
    ),
    ("KubernetesCluster", "AddressOverlap"): (
        "Create the cluster again with another value in the field that the message names."
    ),
    ("KubernetesCluster", "BootstrapTimedOut"): (
        "Run `journalctl --unit slipway-bootstrap` in the first machine of the control plane."
    ),
    ("KubernetesCluster", "BudgetExceeded"): (
        "Check the network and storage of all nodes. Raise spec.health.maxUnhealthy if the "
        "nodes broke independently."
    ),
    ("KubernetesCluster", "ControlPlaneBroken"): (
        "Repair the machine of the node: kubectl slipway tree KubernetesCluster/{name}"
    ),
    ("KubernetesCluster", "ControlPlaneLost"): "Restore etcd from a backup into a new cluster.",
    ("KubernetesCluster", "DrainTimedOut"): (
        "Check PodDisruptionBudgets in the cluster that prevent evictions."
    ),
    ("KubernetesCluster", "Expiring"): "Renew the certificate as the message says.",
    ("KubernetesCluster", "NetworkMissing"): "Create the Network that spec.networkRef names.",
    ("KubernetesCluster", "NetworkUnsuitable"): "Change the Network as the message says.",
    ("KubernetesCluster", "NodesNotReady"): (
        "Check the machines of the nodes: kubectl slipway tree KubernetesCluster/{name}"
    ),
    ("KubernetesCluster", "RebuildFailed"): (
        "Fix the cause in the message. Then delete the Operation (kubectl get operations -n "
        "{namespace}), or set a new token in spec.recycle."
    ),
    ("KubernetesCluster", "ServicesWaiting"): (
        "Do what the message says. To raise the limit: kubectl edit kubernetescluster {name} "
        "-n {namespace}"
    ),
    ("KubernetesCluster", "Unreachable"): (
        "Check the machines of the control plane: kubectl slipway tree KubernetesCluster/{name}"
    ),
    ("KubernetesCluster", "UpgradeFailed"): (
        "Set an image that has the version, or delete the Operation to try again: kubectl get "
        "operations -n {namespace}"
    ),
    ("KubernetesCluster", "UpgradeWaiting"): "Fix what the message names.",
    ("KubernetesCluster", "WaitingForAddress"): (
        "Check the IPClaim of the endpoint: kubectl get ipclaims -n {namespace}"
    ),
    ("Operation", "Busy"): "Try again later, or set spec.queue to Wait.",
    ("Operation", "Cancelled"): "Create the Operation again if it is still needed.",
    ("Operation", "DeadlineExceeded"): "Create the Operation again with a higher timeoutSeconds.",
    ("Operation", "DiskFailed"): (
        "Check that the image can be downloaded from within the cluster, then create the "
        "Operation again."
    ),
    ("Operation", "MigrationFailed"): (
        "Check the migrations: kubectl get virtualmachineinstancemigrations -n {namespace}"
    ),
    ("Operation", "NotMigratable"): (
        "Remove what the message names, or use an Operation of type Reboot."
    ),
    ("Operation", "NotRebooted"): (
        "Create an Operation of type Reboot, which does not depend on the guest."
    ),
    ("Operation", "NotRunning"): "Start the machine first.",
    ("Operation", "Queued"): (
        "kubectl get operations -n {namespace} shows the Operations before it."
    ),
    ("Operation", "RollbackFailed"): "All disks are kept. Look at the Instance of the Operation.",
    ("Operation", "RolledBack"): "Fix the cause in the message, then create the Operation again.",
    ("Operation", "SizeNotFound"): "Create the InstanceSize, then create the Operation again.",
    ("Operation", "SnapshotFailed"): (
        "Check the snapshot: kubectl describe virtualmachinesnapshots -n {namespace}"
    ),
    ("Operation", "SnapshotIncomplete"): (
        "Check the storage of the disk, then create the Operation again."
    ),
    ("Operation", "SnapshotNotFound"): (
        "Check the name of the snapshot: kubectl get virtualmachinesnapshots -n {namespace}"
    ),
    ("Operation", "SnapshotUnsupported"): (
        "Create a VolumeSnapshotClass for the storage driver of the disk."
    ),
    ("Operation", "TargetDeleting"): "Create the Operation for another Instance.",
    ("Operation", "TargetNotFound"): "Check the name of the Instance in spec.targetRef.",
    ("Operation", "Unverified"): (
        "Look at the console of the guest. Install a guest agent, or set spec.readinessProbe of"
        " the Instance."
    ),
}
"""Remedy by kind and reason; {name} and {namespace} are replaced by those fields."""

"""Remedies by kind and reason; an empty kind applies to all kinds.

The table contains only reasons whose own documentation (`kinds.json`) names no remedy.
"""

from __future__ import annotations

_REFUSALS = (
    *("AllocationFailed", "BindingFailed", "CorrectionFailed", "CreateFailed", "FailedCreate"),
    *("FailedDelete", "FailedUpdate", "ModifyFailed", "NotApplied", "WriteFailed", "WriteRefused"),
)
_REFUSED = "Check quotas, admission policies and the permissions of the operator."

ADVICE: dict[tuple[str, str], str] = {
    **{("", reason): _REFUSED for reason in _REFUSALS},
    ("", "InvalidSpec"): "Correct the field that the message names.",
    ("", "NameTaken"): "Rename this object, or delete the other object if it is not needed.",
    ("DemoVolume", "ClaimTerminating"): (
        "Delete the pods that use the claim: kubectl describe pvc -n {namespace}"
    ),
    ("DemoVolume", "ClassForbids"): (
        "Set allowVolumeExpansion in the StorageClass, or set spec.size to the size of the "
        "claim."
    ),
    ("DemoVolume", "FileSystemPending"): "Start or restart a pod that mounts the claim.",
    ("DemoVolume", "ForeignClaim"): (
        "Rename the DemoVolume, or remove the other owner from the metadata of the claim."
    ),
    ("DemoVolume", "InUse"): (
        "Delete the pods that use the claim: kubectl describe pvc -n {namespace}"
    ),
    ("DemoVolume", "LargerThanSpec"): "Set spec.size to the size of the claim.",
    ("DemoVolume", "Mismatch"): (
        "Change the spec so that it matches the claim, or set spec.adopt to Never and rename "
        "the DemoVolume."
    ),
    ("DemoVolume", "NotBound"): (
        "Check the claim and its StorageClass: kubectl describe pvc -n {namespace}"
    ),
    ("DemoVolume", "Provisioning"): (
        "Check the claim and its StorageClass: kubectl describe pvc -n {namespace}"
    ),
    ("DemoVolume", "ResizeFailed"): (
        "Check the Events of the storage driver: kubectl describe pvc -n {namespace}"
    ),
    ("DemoVolume", "SnapshotAPIMissing"): "Install the CRDs and the controller of VolumeSnapshot.",
    ("DemoVolume", "SnapshotConflict"): (
        "Delete the VolumeSnapshot that the message names, or rename the DemoVolume."
    ),
    ("DemoVolume", "SnapshotFailed"): (
        "Check the snapshot: kubectl describe volumesnapshots -n {namespace}"
    ),
    ("DemoVolume", "SourceMismatch"): (
        "Create the DemoVolume again with the size and mode of the source."
    ),
    ("DemoVolume", "SourceMissing"): "Create the object that spec.source names.",
    ("DemoVolume", "SourceNotReady"): "Check the object that spec.source names.",
    ("DemoVolume", "UnownedClaim"): (
        "Set spec.adopt to take the claim over, rename the DemoVolume, or delete the claim."
    ),
    ("DemoVolume", "WaitingForFirstConsumer"): "Start a pod that mounts the claim.",
    ("Firewall", "InUse"): "Change spec.firewallRef of the Instances that name the Firewall.",
    ("Firewall", "NetworkNotFound"): "Create the Network that spec.networkRef names.",
    ("Firewall", "TooManyInstances"): "Use several Firewalls, each for a part of the Instances.",
    ("Firewall", "Unenforceable"): (
        "status.unenforceable lists the rules. Express them with TCP, UDP or SCTP ports."
    ),
    ("IPAllocation", "HeldByClaim"): "Delete the IPClaim.",
    ("IPClaim", "AddressOutOfRange"): "Change spec.address, or add it to the pool.",
    ("IPClaim", "AddressQuarantined"): "Wait until the address is free, or remove spec.address.",
    ("IPClaim", "AddressTaken"): (
        "Change or remove spec.address. `kubectl slipway ip who ADDRESS` shows who has it."
    ),
    ("IPClaim", "FamilyMismatch"): "Create the IPClaim again with one IPv4 pool and one IPv6 pool.",
    ("IPClaim", "NamespaceNotAllowed"): (
        "Ask an administrator to add the namespace to spec.allowedNamespaces of the pool."
    ),
    ("IPClaim", "NoPodNetwork"): "Attach the machine to the pod network, or remove spec.target.",
    ("IPClaim", "NoTarget"): "Set spec.target to route the address.",
    ("IPClaim", "PoolDraining"): "Use another pool, or set spec.allocation of the pool to Enabled.",
    ("IPClaim", "PoolExhausted"): (
        "Add addresses to spec.addresses of the pool, or delete IPClaims that are not needed: "
        "kubectl slipway ip pools"
    ),
    ("IPClaim", "PoolNotFound"): "Create the IPPool, or change spec.poolRef.",
    ("IPClaim", "PoolNotReady"): "Check the pool: kubectl slipway ip pools",
    ("IPClaim", "QuotaExceeded"): (
        "Delete IPClaims of the namespace, or raise spec.quotaPerNamespace of the pool."
    ),
    ("IPClaim", "Refused"): (
        "Add the address to a pool of the load balancer, or fix what the message names."
    ),
    ("IPClaim", "StillAssigned"): "Remove spec.target, or set spec.deletionPolicy to Release.",
    ("IPClaim", "TargetNotAllowed"): (
        "Use another kind of target, or ask an administrator to set spec.addressTargets of the "
        "pool to Allow."
    ),
    ("IPClaim", "TargetNotFound"): "Create the object that spec.target names, or correct the name.",
    ("IPClaim", "TargetNotRunning"): "Start the target, or wait until its pods are ready.",
    ("IPClaim", "WaitingForLoadBalancer"): (
        "Install a load balancer such as MetalLB, and add the address to one of its pools."
    ),
    ("IPPool", "AddressesInUse"): (
        "Delete the IPClaims of the pool: kubectl slipway tree IPPool/{name}"
    ),
    ("IPPool", "AddressesOutside"): (
        "Add the addresses to spec.addresses again, or delete the IPClaims that have them: "
        "kubectl slipway tree IPPool/{name}"
    ),
    ("IPPool", "Draining"): "Set spec.allocation to Enabled, or use another pool.",
    ("IPPool", "NoAddresses"): "Change spec.addresses or spec.excluded.",
    ("IPPool", "NoneFree"): "Add addresses to spec.addresses, or delete IPClaims.",
    ("IPPool", "Shared"): (
        "Remove the addresses from one of the pools if they should not share them."
    ),
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
    ("Instance", "Conflict"): "Rename the Instance, or delete the object that the message names.",
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
    ("Instance", "NodeSilent"): (
        "Check the node. If it never returns, delete its Node object; the machine then "
        "starts on another node."
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
        "Fix the cause in the message, then delete the Operation: kubectl get operations -n "
        "{namespace}"
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
    ("Network", "InUse"): "Delete the Instances and Firewalls that name the Network.",
    ("Network", "MtuTooLarge"): (
        "Reduce spec.mtu, or ask an administrator to raise the MTU of the ProviderNetwork."
    ),
    ("Network", "MultiPolicyMissing"): "Install MultiNetworkPolicy, or set spec.isolation to None.",
    ("Network", "MultusMissing"): "Install Multus, or use another backend.",
    ("Network", "NamespaceNotAllowed"): (
        "Ask an administrator to add the namespace to the ProviderNetwork."
    ),
    ("Network", "ProviderNetworkMissing"): (
        "Set spec.providerNetworkRef, or ask an administrator to create the ProviderNetwork."
    ),
    ("Network", "RoutesNotApplied"): "Set spec.poolRef, or use another backend.",
    ("Network", "Unresolved"): "Correct the next hops that status.routes names.",
    ("Network", "VlanNotAllowed"): (
        "Change spec.vlan, or ask an administrator to allow it in the ProviderNetwork."
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
    ("PodSet", "BackOff"): "Look at the logs of the pods: kubectl slipway tree PodSet/{name}",
    ("PodSet", "MinimumUnavailable"): "Check the pods: kubectl slipway tree PodSet/{name}",
    ("PodSet", "Paused"): "Set spec.paused to false.",
    ("PodSet", "PodsNotReady"): "Check the pods: kubectl slipway tree PodSet/{name}",
    ("PodSet", "ProgressDeadlineExceeded"): (
        "Check the pod that the message of Ready names: kubectl slipway tree PodSet/{name}"
    ),
    ("PrometheusJmxExporter", "AgentError"): "Report it to the maintainers with the message.",
    ("PrometheusJmxExporter", "AlreadyInstrumented"): "Scrape that exporter.",
    ("PrometheusJmxExporter", "AttachDisabled"): (
        "Remove -XX:+DisableAttachMechanism, or start new pods with the exporter: spec.startup."
    ),
    ("PrometheusJmxExporter", "AttachRefused"): (
        "Look up the message in the documentation of the Java release."
    ),
    ("PrometheusJmxExporter", "ConfigInvalid"): (
        "Correct the configuration at the place that the message names."
    ),
    ("PrometheusJmxExporter", "ConfigMissing"): "Create the ConfigMap that spec.config names.",
    ("PrometheusJmxExporter", "DryRun"): "Set spec.mode to Active to instrument the JVMs.",
    ("PrometheusJmxExporter", "EphemeralContainerBudgetExhausted"): "Replace the pod.",
    ("PrometheusJmxExporter", "ForeignAnnotations"): (
        "Remove the annotations from the pods, or use spec.service."
    ),
    ("PrometheusJmxExporter", "ForeignSocket"): (
        "Mount a separate /tmp in each container, or delete the file that the message names."
    ),
    ("PrometheusJmxExporter", "InjectorNotStarted"): (
        "Make the image of the injector available: ephemeral containers use the pull secrets of"
        " the pod."
    ),
    ("PrometheusJmxExporter", "JvmTerminated"): (
        "Read the log of that container: kubectl logs --previous. Change the spec to resume."
    ),
    ("PrometheusJmxExporter", "MissingModules"): (
        "Use a Java runtime with the modules that the message names."
    ),
    ("PrometheusJmxExporter", "MonitorUnavailable"): (
        "Install the Prometheus operator, or remove the field."
    ),
    ("PrometheusJmxExporter", "NoJvmFound"): (
        "Change spec.labelSelector if the pod should have a JVM."
    ),
    ("PrometheusJmxExporter", "NoPods"): (
        "Compare spec.labelSelector with the labels of your pods: kubectl get pods -n "
        "{namespace} --show-labels"
    ),
    ("PrometheusJmxExporter", "NoReport"): "Read the log of the container jmx-inject in the pod.",
    ("PrometheusJmxExporter", "NoWritablePath"): "Mount an emptyDir at /tmp.",
    ("PrometheusJmxExporter", "NotServing"): "Check whether another process uses the port.",
    ("PrometheusJmxExporter", "NotVerified"): (
        "Check the options of the JVM, and NetworkPolicies between the operator and the pod."
    ),
    ("PrometheusJmxExporter", "OlderExporter"): (
        "Change the label selectors so that they do not overlap."
    ),
    ("PrometheusJmxExporter", "Paused"): "Set spec.mode to Active.",
    ("PrometheusJmxExporter", "PodNotReady"): "Check why the pod is not ready.",
    ("PrometheusJmxExporter", "PortInUse"): "Set spec.port and spec.lastPort to free ports.",
    ("PrometheusJmxExporter", "PtraceDenied"): (
        "List the capabilities of the JVM in its container, or give it fewer."
    ),
    ("PrometheusJmxExporter", "Refused"): (
        "Allow the image of the operator in the admission policy, or start new pods with the "
        "exporter: spec.startup."
    ),
    ("PrometheusJmxExporter", "RestartRequired"): "Replace the pod.",
    ("PrometheusJmxExporter", "SecretMissing"): (
        "Create the Secret or the key that the message names."
    ),
    ("PrometheusJmxExporter", "SecurityManagerPresent"): (
        "Start the application with the exporter as -javaagent."
    ),
    ("PrometheusJmxExporter", "Starting"): "Check the injector if this lasts: kubectl describe pod",
    ("PrometheusJmxExporter", "TargetsFailed"): (
        "status.failures has the cause per container: kubectl slipway jmx scan {name}"
    ),
    ("PrometheusJmxExporter", "Timeout"): "Raise spec.timeoutSeconds.",
    ("PrometheusJmxExporter", "TlsInvalid"): (
        "Correct the Secret of spec.tls. Keys with a password cannot be read."
    ),
    ("PrometheusJmxExporter", "TooLittleMemory"): (
        "Raise the memory limit of the container, or -XX:MaxMetaspaceSize."
    ),
    ("PrometheusJmxExporter", "TooManyJvms"): "Raise spec.maxJvms.",
    ("PrometheusJmxExporter", "UnsupportedJvm"): (
        "Start the application with the exporter as -javaagent."
    ),
    ("PulsarConsumer", "AuthenticationFailed"): (
        "Correct the credentials in the Secret that the spec names."
    ),
    ("PulsarConsumer", "AuthorizationFailed"): (
        "Grant the role of the operator or of the consumers permission on the namespace of the "
        "topic."
    ),
    ("PulsarConsumer", "BrokerError"): "Check the log of the broker.",
    ("PulsarConsumer", "EngineFailing"): (
        "Fix the cause in the message: kubectl describe scaledobjects,hpa -n {namespace}"
    ),
    ("PulsarConsumer", "EngineMissing"): "Install KEDA, or set spec.autoscaling.engine to Native.",
    ("PulsarConsumer", "EngineSilent"): (
        "Check that KEDA runs: kubectl get pods --all-namespaces -l "
        "app.kubernetes.io/part-of=keda-operator"
    ),
    ("PulsarConsumer", "Fallback"): "Check the broker: kubectl slipway pulsar backlog {name}",
    ("PulsarConsumer", "Idle"): "Set spec.replicas, or spec.autoscaling, to run consumers.",
    ("PulsarConsumer", "NoConsumerReady"): (
        "Check the pods: kubectl slipway tree PulsarConsumer/{name}"
    ),
    ("PulsarConsumer", "Paused"): "kubectl slipway pulsar resume {name}",
    ("PulsarConsumer", "RefusedAddress"): "Set spec.adminAddress to the address of the broker.",
    ("PulsarConsumer", "ReplicasIgnored"): "Set the limits in spec.autoscaling instead.",
    ("PulsarConsumer", "SecretMissing"): "Create the Secret or the key that the message names.",
    ("PulsarConsumer", "SpecChanged"): (
        "Consume the remaining messages or delete the subscriptions that the message names."
    ),
    ("PulsarConsumer", "SubscriptionBlocked"): (
        "Check why consumers do not acknowledge messages: kubectl slipway tree "
        "PulsarConsumer/{name}"
    ),
    ("PulsarConsumer", "TopicMissing"): "Create the topic, or correct its name.",
}
"""Remedy by kind and reason; {name} and {namespace} are replaced by those fields."""

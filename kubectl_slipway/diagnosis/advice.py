"""Remedies by kind and reason; an empty kind applies to all kinds.

The table contains only reasons whose own documentation (`kinds.json`) names no remedy.
"""

from __future__ import annotations

from kubectl_slipway.diagnosis.machine_advice import MACHINE_ADVICE

_REFUSALS = (
    *("AllocationFailed", "BindingFailed", "CorrectionFailed", "CreateFailed", "FailedCreate"),
    *("FailedDelete", "FailedUpdate", "ModifyFailed", "NotApplied", "WriteFailed", "WriteRefused"),
)
_REFUSED = (
    "Fix what the message names, such as a quota, an admission policy, a missing service account, "
    "a field of the template, or the permissions of the operator."
)

ADVICE: dict[tuple[str, str], str] = {
    ("IPClaim", "AddressConflict"): (
        "Ask an administrator to remove the address from the other Service that the message names."
    ),
    ("IPClaim", "AllowedCIDRsUnsupported"): (
        "Remove spec.allowedCidrs, or let an administrator set `announcement` of the ipam operator."
    ),
    ("Instance", "DiskInUse"): (
        "Wait until the machine that the message names has left the disk, or take the disk out of "
        "the spec of one of the two. A data volume on a ReadWriteMany claim can be shared: set "
        "`sharing: Shared` in spec.volumes of every machine."
    ),
    ("Instance", "ImageRefused"): (
        "Choose an image on a host that the message allows, or let an administrator add the host "
        "to `imageHosts` of the compute operator."
    ),
    ("KubernetesCluster", "SharedHost"): (
        "Move a control plane node off the host that the message names: create an Operation of "
        "type Migrate for its Instance, or let an administrator add hosts."
    ),
    ("Instance", "DiskMissing"): (
        "Restore the root disk from the same backup; the message names the disks that were found."
    ),
    ("Network", "VlanTaken"): (
        "Choose another spec.vlan, or let an administrator share VLANs with spec.vlanSharing of "
        "the ProviderNetwork."
    ),
    ("PrometheusJmxExporter", "ContainerUnstable"): "Fix the container, and replace its pod.",
    ("PrometheusJmxExporter", "ScrapeFailed"): (
        "Fix the cause that the message names: kubectl slipway jmx scan {name}"
    ),
    ("PulsarConsumer", "NamesClash"): (
        "Change the field that the message names in one of the two PulsarConsumers."
    ),
    ("PulsarConsumer", "UnacknowledgedLimit"): (
        "Let the handlers finish faster or add consumers, or raise the limit of the broker."
    ),
    **MACHINE_ADVICE,
    **{("", reason): _REFUSED for reason in _REFUSALS},
    ("", "InvalidSpec"): "Correct the field that the message names.",
    ("", "NameTaken"): "Use another name for this object.",
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
        "Set spec.reclaimPolicy to Retain to keep the claim instead of a snapshot."
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
        "Set spec.adopt to take the claim over, or create a DemoVolume with another name."
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
    ("IPClaim", "WholeAddressUnsupported"): (
        "Set spec.traffic to Ports, or ask an administrator to set settings.cozyProxy."
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
    ("Network", "InUse"): "The Network works until no Instance and no Firewall names it.",
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
    ("PodSet", "BackOff"): (
        "Look at the pods: kubectl slipway tree PodSet/{name}. Pods that ran have logs; kubectl "
        "describe pod explains pods that a node refused or evicted."
    ),
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
        "Consume the remaining messages, or set spec.subscription.deletionPolicy to Delete to "
        "discard them."
    ),
    ("PulsarConsumer", "SubscriptionBlocked"): (
        "Check why consumers do not acknowledge messages: kubectl slipway tree "
        "PulsarConsumer/{name}"
    ),
    ("PulsarConsumer", "TopicMissing"): "Create the topic, or correct its name.",
}
"""Remedy by kind and reason; {name} and {namespace} are replaced by those fields."""

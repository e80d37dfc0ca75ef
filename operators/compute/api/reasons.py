"""Conditions and reasons of an Instance."""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Conditions of an Instance."""

    READY = "Ready"
    """Ready is True when the machine matches the spec: running and reachable, or stopped."""
    PROVISIONED = "Provisioned"
    """Provisioned is True when the root disk is filled."""
    NETWORK_READY = "NetworkReady"
    """NetworkReady is True when the Network of the Instance exists and is isolated, or the spec
    names none."""
    FIREWALL_APPLIED = "FirewallApplied"
    """FirewallApplied is True when the requested Firewall protects the machine; the machine does
    not start before."""
    ADDRESS_READY = "AddressReady"
    """AddressReady is True when the public address is routed to the machine, or none is
    requested."""
    RUNNING = "Running"
    """Running is True when the guest runs and its pod is ready."""
    GUEST_VERIFIED = "GuestVerified"
    """GuestVerified is True when a readiness probe or the guest agent has shown that the guest has
    booted, False while one of them is expected to, and Unknown if nothing can show it. It is
    present while the machine runs."""
    REPLACED_DISK_KEPT = "ReplacedDiskKept"
    """ReplacedDiskKept is True while a replaced root disk is kept, since nothing has shown that
    the guest boots from the new one."""
    AGENT_CONNECTED = "AgentConnected"
    """AgentConnected is True when the guest agent responds. It is present while the guest runs."""
    MIGRATABLE = "Migratable"
    """Migratable is True when the guest can move to another node. It is present while the guest
    runs."""
    RESTART_REQUIRED = "RestartRequired"
    """RestartRequired is True when a change takes effect only at the next reboot."""
    REBUILD_PENDING = "RebuildPending"
    """RebuildPending is True if the root disk was filled from another image than spec.image, or is
    smaller than its size asks; the message names both. Only a Rebuild applies them."""
    RESIZE_PENDING = "ResizePending"
    """ResizePending is True while KubeVirt has not given the running guest the processors or the
    memory of its size; the reason says whether it can."""
    EVICTING = "Evicting"
    """Evicting is True while the guest is being evicted from its node."""
    BLOCKED = "Blocked"
    """Blocked is True while the node of the guest does not report its status. Nothing is forced in
    this time."""
    TERMINATING = "Terminating"
    """Terminating is True while the Instance is being deleted; the reason says what the deletion
    waits for."""


class Reason(StrEnum):
    """Reasons of the conditions and events of an Instance."""

    RUNNING = "Running"
    """Running means that the guest runs and is reachable as requested."""
    NOT_VERIFIED = "NotVerified"
    """NotVerified means that the machine runs, and that nothing can show whether its guest has
    booted. Set spec.readinessProbe, or install qemu-guest-agent in the guest."""
    PROBE_SUCCEEDED = "ProbeSucceeded"
    """ProbeSucceeded means that the readiness probe succeeds."""
    PROBE_FAILED = "ProbeFailed"
    """ProbeFailed means that the readiness probe fails, after it had succeeded in this run."""
    WAITING_FOR_PROBE = "WaitingForProbe"
    """WaitingForProbe means that the readiness probe has not succeeded in this run yet."""
    WAITING_FOR_AGENT = "WaitingForAgent"
    """WaitingForAgent means that the guest agent has not responded in this run yet. If the guest
    has no agent any more, set spec.bootCheck to Running, or set spec.readinessProbe."""
    AGENT_LOST = "AgentLost"
    """AgentLost means that the guest agent responded earlier in this run and no longer responds."""
    STOPPED = "Stopped"
    """Stopped means that the machine is off, as requested."""
    GUEST_SHUT_DOWN = "GuestShutDown"
    """GuestShutDown means that the guest shut itself down and spec.onGuestShutdown is Stop. Create
    an Operation of type Start to boot it again."""
    STARTING = "Starting"
    """Starting means that the guest boots."""
    STOPPING = "Stopping"
    """Stopping means that the guest shuts down."""
    RESTARTED = "Restarted"
    """Restarted means that the run that a directive names was ended; KubeVirt starts the next
    run."""
    RERUN = "Rerun"
    """Rerun means that a run was deleted because it had crashed or its node was drained; KubeVirt
    starts the next run."""
    REBUILDING = "Rebuilding"
    """Rebuilding means that the machine is stopped to boot from another disk."""
    PAUSED = "Paused"
    """Paused means that somebody paused the guest through KubeVirt, for example with virtctl."""
    MIGRATING = "Migrating"
    """Migrating means that the guest moves to another node."""
    CRASH_LOOP = "CrashLoop"
    """CrashLoop means that the machine repeatedly fails to start."""
    START_FAILED = "StartFailed"
    """StartFailed means that KubeVirt cannot start the machine; the message contains its error."""
    PROVISIONED = "Provisioned"
    """Provisioned means that the disk is filled."""
    PROVISIONING = "Provisioning"
    """Provisioning means that the disk is being filled."""
    STORAGE_REFUSED = "StorageRefused"
    """StorageRefused means that CDI does not create the root disk because it does not know the
    access mode. Set spec.rootDisk.accessModes, or complete the StorageProfile of the
    StorageClass."""
    IMPORT_RETRYING = "ImportRetrying"
    """ImportRetrying means that CDI could not fill the disk and tries again; the message contains
    the error of CDI."""
    IMAGE_REFUSED = "ImageRefused"
    """ImageRefused means that the operator creates no disk from the image, because of its host."""
    IMPORT_FAILED = "ImportFailed"
    """ImportFailed means that CDI could not fill the disk; check the image."""
    DISK_MISSING = "DiskMissing"
    """DiskMissing means that the Instance was restored and its root disk was not, or cannot be
    told from others. No disk is created until this is resolved."""
    DISK_ADOPTED = "DiskAdopted"
    """DiskAdopted means that a root disk that an earlier Instance with this name has left is used
    again, with its data."""
    DISK_REPLACED = "DiskReplaced"
    """DiskReplaced means that the root disk did not exist any more and was recreated from the
    image."""
    DISK_DIFFERS = "DiskDiffers"
    """DiskDiffers means that the root disk has another image or size than the spec. Create an
    Operation of type Rebuild to replace the disk and its data, or correct the spec."""
    DISK_CREATED = "DiskCreated"
    """DiskCreated means that a root disk was created."""
    DISK_RETIRED = "DiskRetired"
    """DiskRetired means that a root disk that is no longer used was deleted."""
    NOT_REQUESTED = "NotRequested"
    """NotRequested means that the spec does not request it."""
    NETWORK_FOUND = "NetworkFound"
    """NetworkFound means that the Network exists and is isolated from others."""
    NETWORK_MISSING = "NetworkMissing"
    """NetworkMissing means that the Network that spec.networkRef names does not exist."""
    PRIVATE_IP_UNSUPPORTED = "PrivateIPUnsupported"
    """PrivateIPUnsupported means that spec.privateIP has no effect: the machine has the address of
    its pod. Use a Network with backend Multus and a poolRef."""
    NETWORK_NOT_READY = "NetworkNotReady"
    """NetworkNotReady means that the Network is not isolated from others yet."""
    FIREWALL_APPLIED = "FirewallApplied"
    """FirewallApplied means that the enforced rules cover this Instance."""
    FIREWALL_MISSING = "FirewallMissing"
    """FirewallMissing means that the Firewall that spec.firewallRef names does not exist."""
    FIREWALL_PENDING = "FirewallPending"
    """FirewallPending means that the Firewall does not protect this Instance yet."""
    BOUND = "Bound"
    """Bound means that the public address is routed to the machine."""
    NO_PORTS = "NoPorts"
    """NoPorts means that no port of the public address is routed to the machine. Set
    spec.publicIP.ports, or spec.ports of the IPClaim."""
    ADDRESS_NOT_ROUTED = "AddressNotRouted"
    """AddressNotRouted means that the address is bound to the machine but traffic does not arrive;
    the message is copied from the IPClaim."""
    ADDRESS_PENDING = "AddressPending"
    """AddressPending means that no address is allocated yet, for example because the pool is
    exhausted."""
    ADDRESS_UNBOUND = "AddressUnbound"
    """AddressUnbound means that the address is not routed to the running machine yet."""
    CLAIM_MISSING = "ClaimMissing"
    """ClaimMissing means that the IPClaim that spec.publicIP names does not exist."""
    CLAIM_ELSEWHERE = "ClaimElsewhere"
    """ClaimElsewhere means that spec.target of the IPClaim names another object."""
    SIZE_MISSING = "SizeMissing"
    """SizeMissing means that the InstanceSize that spec.size names does not exist."""
    USER_DATA_MISSING = "UserDataMissing"
    """UserDataMissing means that the Secret that spec.userDataSecretName names does not exist."""
    INSTANCETYPE_MISSING = "InstancetypeMissing"
    """InstancetypeMissing means that the instancetype that spec.instancetype names does not exist.
    A machine that exists keeps its size until then."""
    PREFERENCE_MISSING = "PreferenceMissing"
    """PreferenceMissing means that the preference that spec.preference names does not exist. A
    machine that exists keeps its preference until then."""
    DISK_IN_USE = "DiskInUse"
    """DiskInUse means that another machine uses a disk of this one. The message names it."""
    VOLUME_NOT_READY = "VolumeNotReady"
    """VolumeNotReady means that a volume of spec.volumes does not exist or cannot be used yet."""
    API_MISSING = "APIMissing"
    """APIMissing means that the cluster does not serve a required kind; install KubeVirt."""
    CONFLICT = "Conflict"
    """Conflict means that an object that the operator does not own has a name that it needs; the
    object is not changed."""
    WRITE_FAILED = "WriteFailed"
    """WriteFailed means that the API server refused a write; the message contains its error."""
    CONNECTED = "Connected"
    """Connected means that the guest agent responds."""
    NO_AGENT = "NoAgent"
    """NoAgent means that no guest agent responds."""
    MIGRATABLE = "Migratable"
    """Migratable means that the guest can move to another node."""
    NOT_MIGRATABLE = "NotMigratable"
    """NotMigratable means that KubeVirt cannot move the guest; the message contains its reason."""
    RESTART_REQUIRED = "RestartRequired"
    """RestartRequired means that a change needs a reboot; create an Operation of type Reboot."""
    HOTPLUG_IN_PROGRESS = "HotplugInProgress"
    """HotplugInProgress means that KubeVirt is changing the running guest."""
    HOTPLUG_BLOCKED = "HotplugBlocked"
    """HotplugBlocked means that KubeVirt cannot change the running guest, since it cannot be
    live-migrated. A restart applies the change."""
    HOTPLUG_REFUSED = "HotplugRefused"
    """HotplugRefused means that KubeVirt refuses to change the running guest; the message contains
    the error of KubeVirt. A restart applies the change."""
    EVICTION_REQUESTED = "EvictionRequested"
    """EvictionRequested means that the node is being drained."""
    NODE_SILENT = "NodeSilent"
    """NodeSilent means that the node has stopped reporting its status."""
    WITHDRAWING_ADDRESS = "WithdrawingAddress"
    """WithdrawingAddress means that the public address is being released."""
    DELETING_MACHINE = "DeletingMachine"
    """DeletingMachine means that the machine is shutting down and will be deleted."""
    DELETING_DISK = "DeletingDisk"
    """DeletingDisk means that the root disk is being deleted."""
    KEPT = "Kept"
    """Kept means that spec.deletionPolicy kept an object, which has no owner now."""
    TERMINATING = "Terminating"
    """Terminating means that the Instance is being deleted."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""

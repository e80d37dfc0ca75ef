"""The observed state of an Instance, and simple conclusions from it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from libs.common.kinds import Kind, Manifest
from libs.common.reading import map_at, maps_at, quantity_at, text_at
from libs.contracts.compute import OperationView
from libs.contracts.instancetypes import InstancetypeView, MatcherState
from libs.contracts.ip_claims import IpClaimView
from libs.contracts.kubevirt import RunStrategy, VmCondition, VmiView, VmView
from libs.contracts.network import FirewallView, NetworkView
from operators.compute.api.directives import Directive, DirectiveKind, DiskUse
from operators.compute.api.instance import RESCUED, ROOT, Instance
from operators.compute.instance.record import read_record
from operators.compute.naming import root_disk_name


@dataclass(frozen=True, slots=True)
class Capacity:
    """The CPUs and memory of a machine.

    Attributes:
        memory: Bytes of memory; None if the value is invalid.
    """

    cpus: int
    memory: Fraction | None

    @classmethod
    def of_run(cls, manifest: Manifest) -> Capacity:
        """Read the actual capacity of the guest of a VirtualMachineInstance.

        KubeVirt changes the spec of the instance first, and the guest later or never.
        """
        asked = cls.of_domain(map_at(manifest, "spec", "domain"))
        topology = map_at(manifest, "status", "currentCPUTopology")
        memory = quantity_at(manifest, "status", "memory", "guestCurrent")
        return cls(
            cls.of_domain({"cpu": topology}).cpus if topology else asked.cpus,
            asked.memory if memory is None else memory,
        )

    @classmethod
    def of_domain(cls, domain: Mapping[str, Any]) -> Capacity:
        """Read the capacity from a `domain` of KubeVirt."""
        cpu = map_at(domain, "cpu")
        counts = [cpu.get(name) for name in ("sockets", "cores", "threads")]
        cpus = 1
        for count in counts:
            cpus *= count if isinstance(count, int) and count > 0 else 1
        return cls(cpus, quantity_at(domain, "memory", "guest"))


@dataclass(frozen=True, slots=True)
class DiskView:
    """A root disk: a DataVolume, or its claim if the DataVolume no longer exists.

    Attributes:
        kind: DataVolume or PersistentVolumeClaim.
        manifest: The object, for patches and deletion.
        name: Name of the DataVolume and of the claim.
        filled: Whether it contains all its data, so that a machine can boot from it.
        failed: Whether it can never be filled.
        unknown: Whether CDI currently does not know its state.
        progress: Progress for messages, such as `40 %`; empty if unknown.
        last_error: Last error of filling it, as reported by CDI.
        refusal: Why CDI does not create its claim, as reported by CDI.
        waits: Whether CDI cannot begin to fill it before its claim has storage.
    """

    kind: Kind
    manifest: Manifest
    name: str
    uid: str
    deleting: bool
    filled: bool
    failed: bool
    unknown: bool = False
    progress: str = ""
    restarts: int = 0
    last_error: str = ""
    refusal: str = ""
    waits: bool = False

    @property
    def failure(self) -> str:
        """Why it can never be filled, for messages."""
        return self.last_error or "CDI gives no reason; see the Events of its DataVolume"

    @property
    def filling(self) -> str:
        """State of a disk that is not filled yet, for messages."""
        if self.refusal:
            return (
                f"is not created by CDI: {self.refusal}; set spec.rootDisk.accessModes, or "
                "complete the StorageProfile of its StorageClass"
            )
        facts = [self.progress] if self.progress else []
        if self.restarts:
            times = "once" if self.restarts == 1 else f"{self.restarts} times"
            facts.append(f"the importer was restarted {times}")
        if self.last_error:
            facts.append(f"CDI reports: {self.last_error}")
        if self.waits and not facts:
            return (
                "waits for its storage; if this takes long, the Events of PersistentVolumeClaim "
                f"{self.name} show the cause, such as a StorageClass that does not exist"
            )
        return "is being filled" + (f" ({'; '.join(facts)})" if facts else "")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the machine: a VirtualMachineInstance.

    Attributes:
        disk: Root disk with which it was started.
        rescued: Whether another root disk is attached for repair.
    """

    view: VmiView
    disk: str
    capacity: Capacity
    probed: bool = False
    rescued: bool = False

    @classmethod
    def parse(cls, manifest: Manifest) -> Run:
        """Parse a VirtualMachineInstance."""
        volumes = maps_at(manifest, "spec", "volumes")
        disks = [text_at(item, "dataVolume", "name") for item in volumes if item["name"] == ROOT]
        return cls(
            VmiView.parse(manifest),
            "".join(disks),
            Capacity.of_run(manifest),
            probed=bool(map_at(manifest, "spec", "readinessProbe")),
            rescued=any(text_at(item, "name") == RESCUED for item in volumes),
        )

    @property
    def paused(self) -> bool:
        """Whether somebody paused the guest."""
        return self.view.conditions.holds(VmCondition.PAUSED)

    @property
    def ready(self) -> bool:
        """Whether KubeVirt reports it as ready and it is not being ended."""
        return self.view.ready and not self.view.deleting


@dataclass(frozen=True, slots=True)
class Machine:
    """The VirtualMachine.

    Attributes:
        disk: Root disk in its template.
        claims: Claims of the further volumes in its template, by volume name.
        has_network_data: Whether its template configures the network of the guest.
        instancetype: Instancetype that defines the capacity instead; None for none.
        preference: Preference of the machine; None for none.
    """

    view: VmView
    disk: str
    capacity: Capacity
    claims: Mapping[str, str]
    has_network_data: bool = False
    instancetype: MatcherState | None = None
    preference: MatcherState | None = None

    @classmethod
    def parse(cls, manifest: Manifest) -> Machine:
        """Parse a VirtualMachine."""
        view = VmView.parse(manifest)
        domain = map_at(manifest, "spec", "template", "spec", "domain")
        claims = {
            text_at(item, "name"): text_at(item, "persistentVolumeClaim", "claimName")
            for item in maps_at(manifest, "spec", "template", "spec", "volumes")
        }
        return cls(
            view,
            view.disks.get(ROOT, ""),
            Capacity.of_domain(domain),
            {name: claim for name, claim in claims.items() if claim},
            has_network_data=any(
                map_at(item, "cloudInitNoCloud", "networkDataSecretRef")
                for item in maps_at(manifest, "spec", "template", "spec", "volumes")
            ),
            instancetype=MatcherState.parse(manifest, "instancetype"),
            preference=MatcherState.parse(manifest, "preference"),
        )

    @property
    def halted(self) -> bool:
        """Whether KubeVirt has observed that the machine must be off."""
        return self.view.halted

    @property
    def kept_running(self) -> bool:
        """Whether the run strategy makes KubeVirt keep the machine running."""
        return self.view.run_strategy in (RunStrategy.ALWAYS, RunStrategy.ONCE)


@dataclass(frozen=True, slots=True)
class Volumes:
    """The additional volumes that the spec requests.

    Attributes:
        claims: Claims that can be mounted, by volume name.
        problems: Why other claims cannot be mounted, one message each.
    """

    claims: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """The current state of one Instance and its dependencies.

    Attributes:
        size: Capacity of the InstanceSize; None if it does not exist.
        disk_size: Size of a root disk of that InstanceSize.
        instancetype: Instancetype of the spec; None if it does not exist.
        preference_exists: Whether the preference of the spec exists.
        missing_apis: Required kinds that the cluster does not serve.
        network: Network of the spec; None if it does not exist.
        firewall: Firewall of the spec; None if it does not exist.
        claim: IPClaim of the public address; None if it does not exist.
        claim_manifest: The same IPClaim as a manifest.
        in_use: Why a disk cannot be used, because another machine uses it, by claim.
        image_hosts: Hosts from which images are allowed; empty for no limit.
        machine: VirtualMachine with the name of the Instance, if it is ours.
        run: Current run of the machine; None if it is off.
        pod_address: Address of the pod in which the guest runs; empty if unknown.
        shut_down: Whether the guest of the run shut itself down and the machine stays off.
        private_claim: IPClaim of the private address; None if it does not exist.
        disks: Root disks that are ours, by name.
        disk_problem: Why the root disk of a restored Instance cannot be determined; empty if it can
            or need not be.
        former_claims: IPClaims that an earlier Instance with this name has left.
        former_machine: VirtualMachine of an earlier Instance with this name; None for none.
        foreign: Objects of other owners with names that the Instance needs, for messages.
        silent_node: Node of the run if it has stopped reporting; otherwise empty.
        place: Node on which a new root disk must be usable; empty for any.
        lacks_user_data: Whether the Secret with the user data of the next run does not exist.
    """

    size: Capacity | None = None
    disk_size: str = ""
    instancetype: InstancetypeView | None = None
    preference_exists: bool = False
    missing_apis: tuple[str, ...] = ()
    network: NetworkView | None = None
    firewall: FirewallView | None = None
    claim: IpClaimView | None = None
    claim_manifest: Manifest | None = None
    volumes: Volumes = Volumes()
    in_use: Mapping[str, str] = field(default_factory=dict)
    image_hosts: tuple[str, ...] = ()
    machine: Machine | None = None
    run: Run | None = None
    pod_address: str = ""
    shut_down: bool = False
    private_claim: IpClaimView | None = None
    disks: Mapping[str, DiskView] = field(default_factory=dict)
    disk_problem: str = ""
    former_claims: tuple[Manifest, ...] = ()
    former_machine: Manifest | None = None
    foreign: tuple[str, ...] = ()
    silent_node: str = ""
    operation: OperationView | None = None
    place: str = ""
    lacks_user_data: bool = False


def find_current_disk(instance: Instance, observed: Observed) -> str:
    """Return the root disk from which the machine boots, or would boot.

    The machine itself has precedence. If it does not exist, for example because its first disk
    cannot be filled, the disk of a directive is used, else the disk in the status. If the status is
    lost as well, for example after a restore from a backup, the disk in the record is used, then an
    existing disk, and only then a new one.
    """
    if observed.machine is not None and observed.machine.disk:
        return observed.machine.disk
    asked = _find_asked_disk(instance, observed)
    if asked and observed.machine is None and observed.run is None:
        return asked
    if instance.observed.root_disk is not None:
        return instance.observed.root_disk.name
    if recorded := read_record(instance).disk:
        return recorded
    default = root_disk_name(instance.metadata.name)
    directive = instance.spec.directive(DirectiveKind.ROOT_DISK)
    held = [name for name in sorted(observed.disks) if directive is None or name != directive.disk]
    return default if default in observed.disks or not held else held[0]


def find_wanted_disk(instance: Instance, observed: Observed) -> str:
    """Return the root disk from which the machine should boot as soon as possible."""
    return _find_asked_disk(instance, observed) or find_current_disk(instance, observed)


def _find_asked_disk(instance: Instance, observed: Observed) -> str:
    """Return the disk from which a directive wants to boot; empty if that is not possible yet."""
    directive = find_boot(instance)
    name = "" if directive is None else directive.disk or ""
    disk = observed.disks.get(name)
    usable = disk is not None and disk.filled and not disk.deleting
    return name if usable and name not in observed.in_use else ""


def find_boot(instance: Instance) -> Directive | None:
    """Return the directive to boot from another disk, or None."""
    directive = instance.spec.directive(DirectiveKind.ROOT_DISK)
    return directive if directive is not None and directive.use is DiskUse.BOOT else None


def is_protected(instance: Instance, observed: Observed) -> bool:
    """Return whether the machine may start because policies already isolate it.

    With a firewall, only the list of covered instances in its status counts, not its condition
    Ready: rules that cannot be expressed make it not ready, although all traffic is denied.
    """
    if instance.spec.firewall_ref is not None:
        return observed.firewall is not None and observed.firewall.protects(instance.metadata.uid)
    if instance.spec.network_ref is not None:
        return observed.network is not None and observed.network.isolated
    return True


def has_network(instance: Instance, observed: Observed) -> bool:
    """Return whether the network of the machine is known."""
    if instance.spec.network_ref is None:
        return True
    network = observed.network
    if network is None:
        return False
    if not network.is_attached:
        return True
    claim = observed.private_claim
    addressed = not network.pool or (claim is not None and bool(claim.address))
    return bool(network.attachment) and addressed


def can_have_private_ip(instance: Instance, observed: Observed) -> bool:
    """Return whether the Network allocates private addresses; True if the Network is unknown."""
    if instance.spec.network_ref is None:
        return False
    network = observed.network
    return network is None or network.allocates_addresses

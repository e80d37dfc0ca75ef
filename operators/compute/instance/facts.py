"""Evaluates the observed state of an Instance, one condition at a time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from libs.common.conditions import Condition
from libs.common.kinds import Manifest
from libs.common.quantity import parse_quantity, render_quantity
from libs.common.reading import map_at, quantity_at
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.instancetypes import FAILED_FIND
from libs.contracts.kubevirt import PrintableStatus, VmCondition, VmiPhase
from libs.contracts.network import NetworkView
from operators.compute.api.addresses import PublicIPMode
from operators.compute.api.directives import DirectiveKind
from operators.compute.api.instance import Instance, Power
from operators.compute.api.reasons import ConditionType, Reason
from operators.compute.images import explain_refused
from operators.compute.instance.boot import evaluate_guest
from operators.compute.instance.observed import (
    Machine,
    Observed,
    Run,
    can_have_private_ip,
    find_current_disk,
    find_wanted_disk,
    has_network,
)
from operators.compute.instance.record import has_other_keys
from operators.compute.instance.resources import build_source

_PROBLEM: Final = frozenset(
    {
        PrintableStatus.PVC_NOT_FOUND,
        PrintableStatus.DATA_VOLUME_ERROR,
        PrintableStatus.UNSCHEDULABLE,
        PrintableStatus.ERR_IMAGE_PULL,
        PrintableStatus.IMAGE_PULL_BACK_OFF,
        PrintableStatus.CRASH_LOOP_BACK_OFF,
    }
)
"""Values of printableStatus that require action by a person."""
_HOTPLUG_ERRORS: Final = frozenset({"HotPlugCPUError", "HotPlugMemoryError"})
"""Reasons of the condition Failure of a machine that KubeVirt cannot resize while it runs."""
_NOT_STARTED: Final = FAILED_FIND | {"FailedCreate"}
"""Reasons of the condition Failure of a machine for which KubeVirt creates no run."""
_NOT_SHARED: Final = "DisksNotLiveMigratable"
"""Reason of KubeVirt for a guest with a disk that only one node can mount at a time."""
_CREDENTIALS: Final = ("secretRef", "certConfigMap")
"""Fields of a source that do not change what a disk is filled with."""
_MANY_FAILURES: Final = 3
"""Number of successive failed starts after which the machine counts as crash-looping."""


def evaluate_provisioned(instance: Instance, observed: Observed) -> Condition:
    """Build the condition Provisioned: whether the root disk is filled."""
    type_ = ConditionType.PROVISIONED
    name = find_current_disk(instance, observed)
    disk = observed.disks.get(name)
    if observed.disk_problem:
        return Condition.false(type_, Reason.DISK_MISSING, observed.disk_problem)
    if disk is None and (problem := explain_refused(instance.spec.image, observed.image_hosts)):
        return Condition.false(type_, Reason.IMAGE_REFUSED, f"spec.image: {problem}")
    if disk is None:
        return Condition.false(type_, Reason.PROVISIONING, f"the disk {name} is being created")
    if disk.failed:
        message = f"the disk {name} cannot be filled from {instance.spec.image}: {disk.failure}"
        return Condition.false(type_, Reason.IMPORT_FAILED, message)
    if disk.filled:
        return Condition.true(type_, Reason.PROVISIONED, f"the disk {name} is filled")
    reason = Reason.STORAGE_REFUSED if disk.refusal else Reason.PROVISIONING
    if disk.last_error:
        reason = Reason.IMPORT_RETRYING
    return Condition.false(type_, reason, f"the disk {name} {disk.filling}")


def evaluate_network(instance: Instance, observed: Observed) -> Condition:
    """Build the condition for the network of the machine."""
    type_, reference = ConditionType.NETWORK_READY, instance.spec.network_ref
    if instance.spec.private_ip is not None and not can_have_private_ip(instance, observed):
        message = (
            "spec.privateIP has no effect, since the machine has the address of its pod; use a "
            "Network with backend Multus and spec.poolRef"
        )
        return Condition.false(type_, Reason.PRIVATE_IP_UNSUPPORTED, message)
    if reference is None:
        return Condition.true(type_, Reason.NOT_REQUESTED, "on the pod network")
    network = observed.network
    if network is None:
        message = f"spec.networkRef: Network {reference.name} does not exist; create it"
        return Condition.false(type_, Reason.NETWORK_MISSING, message)
    if not has_network(instance, observed):
        return Condition.false(type_, Reason.NETWORK_NOT_READY, _explain_network(observed, network))
    if not network.isolated and instance.spec.firewall_ref is None:
        message = f"Network {reference.name} does not isolate its instances yet"
        return Condition.false(type_, Reason.NETWORK_NOT_READY, message)
    return Condition.true(type_, Reason.NETWORK_FOUND, f"on Network {reference.name}")


def _explain_network(observed: Observed, network: NetworkView) -> str:
    """Return what is missing before a machine can be attached to a Network."""
    if not network.attachment:
        return f"Network {network.key.name} has no NetworkAttachmentDefinition yet"
    claim = observed.private_claim
    why = "it does not exist yet" if claim is None else claim.message or "it has no address yet"
    return f"no private address from IPPool {network.pool} yet; the IPClaim reports: {why}"


def evaluate_firewall(instance: Instance, observed: Observed) -> Condition:
    """Build the condition for the firewall of the machine."""
    type_, reference = ConditionType.FIREWALL_APPLIED, instance.spec.firewall_ref
    if reference is None:
        return Condition.true(type_, Reason.NOT_REQUESTED, "spec.firewallRef is not set")
    if observed.firewall is None:
        message = f"spec.firewallRef: Firewall {reference.name} does not exist; create it"
        return Condition.false(type_, Reason.FIREWALL_MISSING, message)
    if not observed.firewall.protects(instance.metadata.uid):
        message = f"Firewall {reference.name} does not protect this Instance yet"
        return Condition.false(type_, Reason.FIREWALL_PENDING, message)
    return Condition.true(type_, Reason.FIREWALL_APPLIED, f"by Firewall {reference.name}")


def evaluate_address(instance: Instance, observed: Observed) -> Condition:
    """Build the condition for the public address: whether it is routed to the current run."""
    type_, public = ConditionType.ADDRESS_READY, instance.spec.public_ip
    if public.mode is PublicIPMode.NONE:
        return Condition.true(type_, Reason.NOT_REQUESTED, "spec.publicIP requests no address")
    claim = observed.claim
    if claim is None:
        message = f"IPClaim {public.claim_name or 'of the Instance'} does not exist yet"
        return Condition.false(type_, Reason.CLAIM_MISSING, message)
    if claim.target != f"Instance/{instance.metadata.name}":
        message = (
            f"spec.target of IPClaim {claim.key.name} is {claim.target or 'not set'}; "
            f"set it to Instance {instance.metadata.name}"
        )
        if public.mode is PublicIPMode.AUTO:
            message += ", or set spec.publicIP.mode to None"
        return Condition.false(type_, Reason.CLAIM_ELSEWHERE, message)
    if not claim.address:
        message = claim.message or f"IPClaim {claim.key.name} has no address yet"
        return Condition.false(type_, Reason.ADDRESS_PENDING, message)
    if not claim.ports:
        field = "spec.publicIP.ports"
        if public.mode is PublicIPMode.CLAIM:
            field = f"spec.ports of IPClaim {claim.key.name}"
        message = f"{claim.address} is allocated, and no port is routed to the machine; set {field}"
        return Condition.false(type_, Reason.NO_PORTS, message)
    run = observed.run
    if run is None:
        message = f"{claim.address} waits for the machine to run"
        return Condition.false(type_, Reason.ADDRESS_UNBOUND, message)
    if not claim.bound:
        follows = claim.vmi_uid == run.view.uid
        reason = Reason.ADDRESS_NOT_ROUTED if follows else Reason.ADDRESS_UNBOUND
        message = claim.bound_message or "it gives no reason"
        message = (
            f"{claim.address} is not routed to the machine; IPClaim {claim.key.name}: {message}"
        )
        return Condition.false(type_, reason, message)
    if claim.vmi_uid != run.view.uid:
        message = f"{claim.address} is not routed to the current run of the machine yet"
        return Condition.false(type_, Reason.ADDRESS_UNBOUND, message)
    if node := observed.silent_node:
        message = f"nothing shows whether {claim.address} is reachable: node {node} does not report"
        return Condition.unknown(type_, Reason.NODE_SILENT, message)
    ports = ", ".join(claim.ports)
    return Condition.true(type_, Reason.BOUND, f"{claim.address} routes {ports} to the machine")


def evaluate_running(instance: Instance, observed: Observed) -> Condition:
    """Build the condition Running."""
    type_ = ConditionType.RUNNING
    machine, run = observed.machine, observed.run
    if run is not None and run.view.ready and not run.view.deleting:
        return Condition.true(type_, Reason.RUNNING, f"on node {run.view.node_name}")
    if run is not None and run.paused:
        return Condition.false(type_, Reason.PAUSED, _explain_pause(run))
    if find_current_disk(instance, observed) != find_wanted_disk(instance, observed):
        message = "the machine is stopped in order to boot from another disk"
        return Condition.false(type_, Reason.REBUILDING, message)
    if instance.spec.power is Power.STOPPED:
        if run is None:
            return Condition.false(type_, Reason.STOPPED, "spec.power is Stopped")
        return Condition.false(type_, Reason.STOPPING, "the guest shuts down")
    if machine is None:
        return Condition.false(type_, Reason.STARTING, "the machine is not created yet")
    if observed.shut_down:
        message = (
            "the guest shut itself down, and spec.onGuestShutdown is Stop; create an Operation of "
            "type Start to boot it again"
        )
        return Condition.false(type_, Reason.GUEST_SHUT_DOWN, message)
    if machine.view.start_failures >= _MANY_FAILURES:
        message = (
            "the machine ended several times in a row before it ran; the Events of "
            f"VirtualMachineInstance {instance.metadata.name} show the cause"
        )
        return Condition.false(type_, Reason.CRASH_LOOP, message)
    last_error = _find_problem(observed)
    if last_error:
        return Condition.false(type_, Reason.START_FAILED, last_error)
    if run is not None and run.view.deleting:
        return Condition.false(type_, Reason.STOPPING, "the guest shuts down, to start again")
    return _explain_start(run)


def _explain_pause(run: Run) -> str:
    paused = run.view.conditions.find(VmCondition.PAUSED)
    if paused is None or paused.reason in ("", "PausedByUser"):
        return "the guest is paused; resume it with virtctl unpause vm"
    # KubeVirt resumes a guest with an I/O error by itself, and pauses it again at the next one.
    message = f"KubeVirt paused the guest: {paused.reason}: {paused.message}"
    return f"{message}; check the storage of its disks, for example whether it is full"


def _explain_start(run: Run | None) -> Condition:
    """Build the condition of a machine that must run and does not, for a reason to be found."""
    type_ = ConditionType.RUNNING
    if run is None:
        return Condition.false(type_, Reason.STARTING, "KubeVirt has not started the machine yet")
    name, view = run.view.key.name, run.view
    synchronized = view.conditions.find(VmCondition.SYNCHRONIZED)
    if synchronized is not None and synchronized.status == "False" and synchronized.message:
        message = f"KubeVirt cannot start the guest: {synchronized.message}"[:1024]
        return Condition.false(type_, Reason.START_FAILED, message)
    if view.phase in (VmiPhase.UNSET, VmiPhase.PENDING, VmiPhase.SCHEDULING):
        message = (
            "waiting for the launcher pod to start; if this takes long, the Events of its pod "
            f"virt-launcher-{name} show the cause"
        )
        return Condition.false(type_, Reason.STARTING, message)
    if view.final:
        message = f"the run ended as {view.phase}; the machine starts again"
        return Condition.false(type_, Reason.STARTING, message)
    ready = view.conditions.find(VmCondition.READY)
    if ready is not None and ready.reason == "PodTerminating":
        message = "the launcher pod is being deleted, and the guest shuts down"
        return Condition.false(type_, Reason.STOPPING, message)
    return Condition.false(type_, Reason.STARTING, "the guest boots")


def evaluate_extras(instance: Instance, observed: Observed) -> list[Condition]:
    """Build the conditions that are only present if they apply."""
    found = _evaluate_disk(instance, observed)
    run, machine = observed.run, observed.machine
    if run is not None and run.view.running:
        found += [
            evaluate_guest(instance, observed, run),
            _evaluate_agent(observed),
            _evaluate_migratable(observed),
        ]
    if machine is not None and run is not None and not run.view.final:
        found += _evaluate_resize(machine, run)
    if machine is not None and machine.view.conditions.holds(VmCondition.RESTART_REQUIRED):
        message = "a change takes effect at the next start; create an Operation of type Reboot"
        found.append(
            Condition.true(ConditionType.RESTART_REQUIRED, Reason.RESTART_REQUIRED, message)
        )
    # KubeVirt keeps the name of the node for a while after the machine has left it.
    if run is not None and run.view.evacuation_node in {run.view.node_name} - {""}:
        message = f"node {run.view.evacuation_node} is being emptied"
        found.append(Condition.true(ConditionType.EVICTING, Reason.EVICTION_REQUESTED, message))
    if observed.silent_node:
        message = (
            f"node {observed.silent_node} does not report; the machine may still run there, so it"
            " is neither deleted by force nor started elsewhere; repair the node, or make sure that"
            " it is off and taint it with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        )
        found.append(Condition.true(ConditionType.BLOCKED, Reason.NODE_SILENT, message))
    return found


def _evaluate_disk(instance: Instance, observed: Observed) -> list[Condition]:
    """Build the condition for fields that a Rebuild would apply; empty if the disk has them."""
    disk = observed.disks.get(find_current_disk(instance, observed))
    moves = instance.spec.directive(DirectiveKind.ROOT_DISK) is not None
    if moves or disk is None or disk.kind != DATA_VOLUME:
        return []
    held, image, found = map_at(disk.manifest, "spec"), instance.spec.image, []
    kept = _read_content(held)
    if kept and kept != _read_content(build_source(instance, image)):
        name = kept[1].get("url") or kept[1].get("name")
        found.append(f"its root disk was filled from {name}, and spec.image is {image}")
    has = quantity_at(held, "storage", "resources", "requests", "storage")
    size = instance.spec.root_disk.size or observed.disk_size
    if size and has is not None and has < (parse_quantity(size) or 0):
        found.append(f"its root disk has {render_quantity(has)}, and its size asks for {size}")
    if has_other_keys(instance, disk.manifest):
        found.append("its guest was set up with another spec.ssh")
    if not found:
        return []
    message = f"{'; '.join(found)}: a Rebuild applies this, with a new disk without the data"
    return [Condition.true(ConditionType.REBUILD_PENDING, Reason.DISK_DIFFERS, message)]


def _read_content(spec: Mapping[str, Any]) -> tuple[str, Manifest] | None:
    """Return what a DataVolume is filled with; None if it does not say so."""
    for how, each in (*map_at(spec, "source").items(), ("", map_at(spec, "sourceRef"))):
        if each:
            return how, {name: value for name, value in each.items() if name not in _CREDENTIALS}
    return None


def _evaluate_resize(machine: Machine, run: Run) -> list[Condition]:
    """Build the condition for a guest that waits for CPUs or memory; empty if it does not."""
    type_ = ConditionType.RESIZE_PENDING
    failure = machine.view.conditions.find(VmCondition.FAILURE)
    if failure is not None and failure.holds and failure.reason in _HOTPLUG_ERRORS:
        message = f"KubeVirt cannot change the running guest: {failure.message}"
        return [Condition.true(type_, Reason.HOTPLUG_REFUSED, message)]
    states = run.view.conditions
    if not (
        states.holds(VmCondition.HOT_VCPU_CHANGE) or states.holds(VmCondition.HOT_MEMORY_CHANGE)
    ):
        return []
    movable = states.find(VmCondition.LIVE_MIGRATABLE)
    if movable is not None and not movable.holds:
        why = movable.message or movable.reason
        message = f"KubeVirt changes a running guest by moving it, and cannot move this one: {why}"
        return [Condition.true(type_, Reason.HOTPLUG_BLOCKED, message)]
    message = "KubeVirt is changing the running guest, which it does by moving it"
    if not run.view.migrating:
        message = (
            "KubeVirt changes a running guest by moving it and has not begun; it never does if "
            "workloadUpdateMethods of the KubeVirt resource lacks LiveMigrate"
        )
    return [Condition.true(type_, Reason.HOTPLUG_IN_PROGRESS, message)]


def _evaluate_agent(observed: Observed) -> Condition:
    assert observed.run is not None
    type_ = ConditionType.AGENT_CONNECTED
    if observed.run.view.conditions.holds(VmCondition.AGENT_CONNECTED):
        return Condition.true(type_, Reason.CONNECTED)
    return Condition.false(type_, Reason.NO_AGENT, "no guest agent responds")


def _evaluate_migratable(observed: Observed) -> Condition:
    assert observed.run is not None
    type_ = ConditionType.MIGRATABLE
    found = observed.run.view.conditions.find(VmCondition.LIVE_MIGRATABLE)
    if found is None:
        return Condition.unknown(type_, Reason.NOT_MIGRATABLE, "KubeVirt has not reported this yet")
    if found.holds:
        return Condition.true(type_, Reason.MIGRATABLE)
    message = found.message or found.reason
    if found.reason == _NOT_SHARED:
        message += "; set spec.rootDisk.accessModes to ReadWriteMany and rebuild the machine"
    return Condition.false(type_, Reason.NOT_MIGRATABLE, message)


def _find_problem(observed: Observed) -> str:
    """Return what KubeVirt reports as wrong with a machine that should run."""
    machine = observed.machine
    if machine is None:
        return ""
    failure = machine.view.conditions.find(VmCondition.FAILURE)
    if failure is not None and failure.holds and failure.reason in _NOT_STARTED:
        return f"KubeVirt cannot start the machine ({failure.reason}): {failure.message}"
    if machine.view.printable_status not in _PROBLEM:
        return ""
    if machine.view.printable_status == PrintableStatus.UNSCHEDULABLE and observed.run is not None:
        # KubeVirt copies this condition, with the words of the scheduler, from the pod of the run.
        failure = observed.run.view.conditions.find(VmCondition.POD_SCHEDULED)
    detail = f": {failure.message}" if failure is not None and failure.message else ""
    return f"KubeVirt says {machine.view.printable_status}{detail}"

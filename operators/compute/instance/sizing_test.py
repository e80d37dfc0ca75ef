"""What gives a machine its size: an InstanceSize, an instancetype, or what it had before."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.plan import Apply
from libs.contracts.instancetypes import InstancetypeView, MatcherState
from libs.contracts.kubevirt import VIRTUAL_MACHINE
from operators.compute.api.instance import Instance
from operators.compute.instance.observed import Machine, Observed, Run
from operators.compute.instance.reconcile import plan_instance
from operators.compute.instance.sizing import find_current_size
from operators.compute.instance.status import build_status
from operators.compute.samples import (
    build_observation,
    parse_instance,
    show_disk,
    show_machine,
    show_run,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTER, OWN = "VirtualMachineClusterInstancetype", "VirtualMachineInstancetype"
UID = "33333333-3333-4333-8333-333333333333"
KEPT = f"web-u1.medium-v1beta1-{UID}-4"


def parse_type(name: str = "u1.medium", kind: str = CLUSTER, **spec: Any) -> Instance:
    """Build an Instance that names an instancetype."""
    instancetype = {"name": name, "kind": kind}
    disk = {"size": "10Gi"}
    return parse_instance(size=None, instancetype=instancetype, rootDisk=disk, **spec)


def show_type(*, cpus: int = 2, memory: str = "4Gi", generation: int = 4) -> InstancetypeView:
    """Show the instancetype as it is now."""
    spec = {"cpu": {"guest": cpus}, "memory": {"guest": memory}}
    metadata = {"uid": UID, "generation": generation}
    return InstancetypeView.parse({"metadata": metadata, "spec": spec})


def name_type(machine: Machine, name: str = "u1.medium", revision: str = KEPT) -> Machine:
    """Have a machine name an instancetype, and KubeVirt keep a revision of it."""
    reference = {"name": name, "kind": CLUSTER, "controllerRevisionRef": {"name": revision}}
    held = {"spec": {"instancetype": {"name": name, "kind": CLUSTER}}}
    status = {"instancetypeRef": reference} if revision else {}
    return replace(
        machine, instancetype=MatcherState.parse({**held, "status": status}, "instancetype")
    )


def applied(instance: Instance, observed: Observed) -> dict[str, Any] | None:
    """Return the spec of the machine that is applied; None for none."""
    steps = [action.step for action in plan_instance(instance, observed, NOW)]
    found = [step for step in steps if isinstance(step, Apply) and step.kind == VIRTUAL_MACHINE]
    return found[0].manifest["spec"] if found else None


def see(machine: Machine | None = None, run: Run | None = None, **parts: Any) -> Observed:
    """Show the current state, without an InstanceSize."""
    return build_observation(size=None, disks=[show_disk()], machine=machine, run=run, **parts)


@pytest.mark.parametrize("kind", [CLUSTER, OWN])
def test_machine_names_the_instancetype_and_has_no_resources_of_its_own(kind: str) -> None:
    made = applied(parse_type(kind=kind), see(instancetype=show_type()))

    assert made is not None
    assert made["instancetype"] == {"kind": kind, "name": "u1.medium"}
    assert not {"cpu", "memory"} & set(made["template"]["spec"]["domain"])


def test_machine_with_an_instancetype_that_is_not_there_is_not_created() -> None:
    instance = parse_type()
    assert applied(instance, see()) is None

    status = build_status(instance, see(), {}, now=NOW)
    ready = status["conditions"][0]
    assert (ready["status"], ready["reason"]) == ("False", "InstancetypeMissing")
    assert ready["message"] == (f"spec.instancetype: {CLUSTER} u1.medium does not exist; create it")


def test_machine_keeps_its_size_until_the_instancetype_exists() -> None:
    # KubeVirt would not even stop a machine that names what does not exist.
    made = applied(parse_type(), see(show_machine()))
    assert made is not None
    assert "instancetype" not in made
    assert made["template"]["spec"]["domain"]["cpu"]["sockets"] == 2

    other = name_type(show_machine(), "u1.small", f"web-u1.small-v1beta1-{UID}-1")
    made = applied(parse_type(), see(other))
    assert made is not None and made["instancetype"]["name"] == "u1.small"


def test_machine_keeps_an_instancetype_that_was_deleted_since() -> None:
    instance, observed = parse_type(), see(name_type(show_machine()))
    made = applied(instance, observed)

    assert made is not None and made["instancetype"]["name"] == "u1.medium"
    ready = build_status(instance, observed, {}, now=NOW)["conditions"][0]
    assert ready["reason"] != "InstancetypeMissing", "KubeVirt has kept it in a revision"


def test_machine_goes_back_to_resources_of_its_own() -> None:
    observed = build_observation(disks=[show_disk()], machine=name_type(show_machine()))
    made = applied(parse_instance(), observed)

    assert made is not None and "instancetype" not in made
    assert made["template"]["spec"]["domain"]["cpu"]["sockets"] == 2


def test_missing_preference_is_not_written_to_a_machine() -> None:
    instance = parse_instance(preference={"name": "windows.11"})
    observed = build_observation(disks=[show_disk()], machine=show_machine())
    made = applied(instance, observed)

    assert made is not None and "preference" not in made
    assert made["template"]["spec"]["domain"]["devices"]["disks"][0]["disk"] == {"bus": "virtio"}
    ready = build_status(instance, observed, {}, now=NOW)["conditions"][0]
    assert ready["reason"] == "PreferenceMissing"


def _pending(type_: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True"}
    return {"conditions": [ready, {"type": type_, "status": "True"}]}


RESTART = {"conditions": [{"type": "RestartRequired", "status": "True"}]}


@pytest.mark.parametrize(
    ("seen", "current"),
    [
        pytest.param(see(name_type(show_machine(), revision="")), False, id="not adopted"),
        pytest.param(see(name_type(show_machine())), True, id="adopted while off"),
        pytest.param(
            see(name_type(show_machine()), show_run(), instancetype=show_type()), True, id="has it"
        ),
        pytest.param(
            see(name_type(show_machine()), show_run(), instancetype=show_type(cpus=4)),
            False,
            id="fewer processors",
        ),
        pytest.param(
            see(name_type(show_machine()), show_run(), instancetype=show_type(memory="8Gi")),
            False,
            id="less memory",
        ),
        pytest.param(
            see(
                name_type(show_machine()), show_run(), instancetype=show_type(cpus=4, generation=5)
            ),
            True,
            id="changed since",
        ),
        pytest.param(see(name_type(show_machine()), show_run()), True, id="deleted since"),
        pytest.param(
            see(name_type(show_machine()), show_run(**_pending("HotVCPUChange"))),
            False,
            id="deleted, hot-plug under way",
        ),
        pytest.param(
            see(name_type(show_machine(status=RESTART)), show_run()),
            False,
            id="deleted, restart needed",
        ),
    ],
)
def test_status_names_the_instancetype_once_the_guest_has_it(seen: Observed, current: bool) -> None:
    instance = parse_type(status={"size": "small"})

    size = find_current_size(instance, seen)

    assert size == (instance.spec.instancetype if current else "small")
    status = build_status(instance, seen, {}, now=NOW)
    assert ("instancetype" in status, "size" in status) == (current, not current)


def test_refused_start_is_quoted() -> None:
    message = 'pods "virt-launcher-web" is forbidden: exceeded quota: team'
    failure = {"type": "Failure", "status": "True", "reason": "FailedCreate", "message": message}
    status = {"conditions": [failure], "printableStatus": "Starting"}
    observed = build_observation(disks=[show_disk()], machine=show_machine(status=status))

    ready = build_status(parse_instance(), observed, {}, now=NOW)["conditions"][0]

    assert (ready["status"], ready["reason"]) == ("False", "StartFailed")
    assert ready["message"] == f"KubeVirt cannot start the machine (FailedCreate): {message}"

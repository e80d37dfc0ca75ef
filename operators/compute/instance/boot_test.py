"""What counts as a guest that has booted, and when a replaced disk is deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import Manifest
from libs.common.plan import Delete
from operators.compute.api.instance import Instance
from operators.compute.instance.observed import Observed, Run
from operators.compute.instance.reconcile import plan_instance
from operators.compute.instance.status import build_status
from operators.compute.samples import (
    build_directive,
    build_observation,
    parse_instance,
    show_disk,
    show_machine,
    show_run,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
AGENT_BEFORE = {"verifiedBoot": {"vmiUID": "run-0", "proof": "Agent"}}
PROBE_BEFORE = {"verifiedBoot": {"vmiUID": "run-0", "proof": "Probe"}}
AGENT_NOW = {"verifiedBoot": {"vmiUID": "run-1", "proof": "Agent"}}
PROBE_NOW = {"verifiedBoot": {"vmiUID": "run-1", "proof": "Probe"}}


def show(instance: Instance, run: Run | None, now: datetime = NOW) -> Manifest:
    """Return the Instance after a reconcile that saw a run."""
    observed = build_observation(disks=[show_disk()], machine=show_machine(), run=run)
    return {"status": build_status(instance, observed, {}, now=now)}


@pytest.mark.parametrize(
    ("run", "status", "check", "verified", "ready"),
    [
        (show_run(agent=True), {}, "Auto", "True/Connected", "True/Running"),
        (show_run(), {}, "Auto", "Unknown/NotVerified", "True/NotVerified"),
        (show_run(), PROBE_BEFORE, "Auto", "Unknown/NotVerified", "True/NotVerified"),
        (show_run(), AGENT_BEFORE, "Auto", "False/WaitingForAgent", "False/WaitingForAgent"),
        (show_run(), {}, "GuestAgent", "False/WaitingForAgent", "False/WaitingForAgent"),
        (show_run(), AGENT_BEFORE, "Running", "Unknown/NotVerified", "True/NotVerified"),
        (show_run(), AGENT_NOW, "Auto", "Unknown/AgentLost", "True/AgentLost"),
        (show_run(probe=True), {}, "Auto", "True/ProbeSucceeded", "True/Running"),
        (
            show_run(probe=True, ready=False),
            {},
            "Auto",
            "False/WaitingForProbe",
            "False/Starting",
        ),
        (
            show_run(probe=True, ready=False, agent=True),
            PROBE_NOW,
            "Running",
            "False/ProbeFailed",
            "False/Starting",
        ),
        (
            show_run(attached=["rescued"]),
            AGENT_BEFORE,
            "GuestAgent",
            "Unknown/NotVerified",
            "True/NotVerified",
        ),
    ],
    ids=[
        "agent",
        "nothing can tell",
        "probe removed",
        "agent before",
        "agent demanded",
        "agent not demanded",
        "agent lost in this run",
        "probe",
        "probe not yet",
        "probe fails",
        "rescue",
    ],
)
def test_guest_is_verified_by_probe_or_agent(
    run: Run, status: Manifest, check: str, verified: str, ready: str
) -> None:
    shown = show(parse_instance(status=status, bootCheck=check), run)

    found = {each["type"]: each for each in shown["status"]["conditions"]}
    assert _render(found["GuestVerified"]) == verified
    assert _render(found["Ready"]) == ready


def test_last_verified_boot_stays_until_another_run_is_verified() -> None:
    instance = parse_instance(status=AGENT_BEFORE)

    def verified(run: Run | None) -> Any:
        return show(instance, run)["status"]["verifiedBoot"]

    assert verified(None) == AGENT_BEFORE["verifiedBoot"]
    assert verified(show_run(agent=True, ready=False)) == AGENT_BEFORE["verifiedBoot"]
    assert verified(show_run(agent=True, attached=["rescued"])) == AGENT_BEFORE["verifiedBoot"]
    assert verified(show_run(agent=True)) == {"vmiUID": "run-1", "proof": "Agent"}
    assert verified(show_run(agent=True, probe=True)) == {"vmiUID": "run-1", "proof": "Probe"}


MOVED = show_machine(disk="new")
RUNS = show_run(disk="new")


def deleted(
    instance: Instance, run: Run | None, now: datetime = NOW, **observation: Any
) -> list[str]:
    """Return the disks that are deleted when the template of the machine has the disk `new`."""
    observed: Observed = build_observation(
        **{"disks": [show_disk(), show_disk("new")], "machine": MOVED, "run": run, **observation}
    )
    steps = [action.step for action in plan_instance(instance, observed, now)]
    return [step.key.name for step in steps if type(step) is Delete]


def test_old_disk_is_deleted_once_the_guest_is_verified_on_the_new_one() -> None:
    instance = parse_instance()

    assert deleted(instance, show_run(disk="new", agent=True)) == ["web-root"]
    assert deleted(instance, show_run(disk="new", probe=True)) == ["web-root"]
    assert deleted(parse_instance(status=AGENT_NOW), RUNS) == ["web-root"]
    assert deleted(instance, RUNS) == [], "KubeVirt calls any QEMU that runs ready"
    assert deleted(instance, show_run(disk="new", agent=True, ready=False)) == []
    assert deleted(instance, show_run(disk="web-root", agent=True)) == []
    assert deleted(instance, None) == []
    assert deleted(instance, show_run(disk="new", agent=True, deleting=True)) == []


def test_machine_that_is_off_proves_nothing_of_its_new_disk() -> None:
    off = show_machine(disk="new", strategy="Halted")

    assert deleted(parse_instance(power="Stopped"), None, machine=off) == []


def test_directive_and_operation_keep_all_disks() -> None:
    verified = show_run(disk="new", agent=True)
    directive = build_directive("RootDisk", disk="new", use="Boot")

    assert deleted(parse_instance(directives=[directive]), verified) == []


def test_disk_that_was_never_filled_is_deleted() -> None:
    empty = [show_disk("extra", filled=False), show_disk("new")]
    unknown = [show_disk("extra", filled=False, unknown=True), show_disk("new")]
    nothing = [show_disk("extra", filled=False), show_disk("new", filled=False)]

    assert deleted(parse_instance(), RUNS, disks=empty) == ["extra"]
    assert deleted(parse_instance(), RUNS, disks=unknown) == []
    assert deleted(parse_instance(), RUNS, disks=nothing) == []


def test_unverified_disk_is_kept_for_the_time_that_the_user_chose() -> None:
    instance = parse_instance(rootDisk={"keepReplacedSeconds": 600})
    observed = build_observation(disks=[show_disk(), show_disk("new")], machine=MOVED, run=RUNS)

    shown = {"status": build_status(instance, observed, {}, now=NOW)}
    assert shown["status"]["keptDisks"] == [{"name": "web-root", "since": "2026-01-01T00:00:00Z"}]
    kept = find_condition(shown, "ReplacedDiskKept")
    assert kept is not None
    assert (kept["status"], kept["message"]) == (
        "True",
        (
            "DataVolume web-root kept until 2026-01-01T00:10:00Z: nothing has shown that the guest "
            "boots from the new disk"
        ),
    )

    later = parse_instance(rootDisk={"keepReplacedSeconds": 600}, status=shown["status"])
    again = build_status(later, observed, {}, now=NOW + timedelta(seconds=300))
    assert again["keptDisks"] == shown["status"]["keptDisks"], "the time counts from the first look"
    assert deleted(later, RUNS, NOW + timedelta(seconds=599)) == []
    assert deleted(later, RUNS, NOW + timedelta(seconds=600)) == ["web-root"]
    assert deleted(later, None, NOW + timedelta(seconds=600)) == [], "it does not run"


def test_disk_is_kept_for_a_day_unless_told_otherwise() -> None:
    status = {"keptDisks": [{"name": "web-root", "since": "2026-01-01T00:00:00Z"}]}
    instance = parse_instance(status=status)

    assert deleted(instance, RUNS, NOW + DAY - timedelta(seconds=1)) == []
    assert deleted(instance, RUNS, NOW + DAY) == ["web-root"]


def _render(condition: Manifest) -> str:
    return f"{condition['status']}/{condition['reason']}"

"""Decisions about an Instance."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.conditions import Condition
from libs.common.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from libs.common.contracts.network import FirewallView, NetworkView
from libs.common.kinds import Key
from libs.common.plan import Apply, Create, Delete, Patch
from libs.common.testing.fakeapi.patches import apply_json_patch
from operators.compute.api.instance import Instance
from operators.compute.instance.facts import judge_provisioned
from operators.compute.instance.observed import Observed, Run, Volumes
from operators.compute.instance.reconcile import decide_machine, plan_instance
from operators.compute.instance.resources import build_public_claim
from operators.compute.marks import is_ours
from operators.compute.samples import (
    LARGE,
    UID,
    build_directive,
    parse_instance,
    show_disk,
    show_machine,
    show_run,
    show_world,
)

FIREWALL = FirewallView(Key("default", "web"), "f", False, "", True, frozenset())


def steps(instance: Instance, observed: Observed, kind: type) -> list[Any]:
    return [
        action.step for action in plan_instance(instance, observed) if type(action.step) is kind
    ]


def machine_of(instance: Instance, observed: Observed) -> dict[str, Any] | None:
    applied = [step for step in steps(instance, observed, Apply) if step.kind == VIRTUAL_MACHINE]
    return applied[0].manifest["spec"] if applied else None


def test_disk_comes_first_and_the_machine_once_it_is_filled() -> None:
    instance = parse_instance()

    nothing = show_world()
    assert [str(step) for step in steps(instance, nothing, Create)] == [
        "create DataVolume default/web-root"
    ]
    assert machine_of(instance, nothing) is None
    assert machine_of(instance, show_world(disks=[show_disk(usable=False)])) is None

    made = machine_of(instance, show_world(disks=[show_disk()]))
    assert made is not None
    assert made["runStrategy"] == "Always"


ANEW = "it began anew 3 times, see the events of its importer pod"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({}, "the disk web-root is being filled"),
        ({"progress": "40 %"}, "the disk web-root is being filled (40 %)"),
        ({"progress": "0 %", "restarts": 3}, f"the disk web-root is being filled (0 %; {ANEW})"),
    ],
    ids=["nothing told", "progress", "an image that cannot be had"],
)
def test_disk_that_is_filled_says_how_far_it_is(told: dict[str, Any], words: str) -> None:
    world = show_world(disks=[show_disk(usable=False, **told)])

    provisioned = judge_provisioned(parse_instance(), world)

    assert provisioned == Condition.false("Provisioned", "Provisioning", words)


def test_machine_is_not_started_before_its_firewall_protects_it() -> None:
    instance = parse_instance(firewallRef={"name": "web"})
    disks = [show_disk()]
    covers = FirewallView(Key("default", "web"), "f", False, "", False, frozenset({UID}))

    assert machine_of(instance, show_world(disks=disks)) is None
    assert machine_of(instance, show_world(disks=disks, firewall=FIREWALL)) is None
    # Also with rules that it cannot express, since all is closed.
    assert machine_of(instance, show_world(disks=disks, firewall=covers)) is not None


def test_machine_is_not_started_before_its_network_is_separated() -> None:
    instance = parse_instance(networkRef={"name": "lan"})
    key = Key("default", "lan")
    open_ = NetworkView(key, "n", False, "PodNetwork", False, "", ())
    closed = NetworkView(key, "n", False, "PodNetwork", True, "", ())

    assert machine_of(instance, show_world(disks=[show_disk()], network=open_)) is None
    assert machine_of(instance, show_world(disks=[show_disk()], network=closed)) is not None


def test_machine_that_runs_is_not_stopped_for_what_it_should_have_waited_for() -> None:
    instance = parse_instance(firewallRef={"name": "gone"})
    volumes = Volumes({}, ("DemoVolume data of spec.volumes is not ready",))
    observed = show_world(
        disks=[show_disk()], machine=show_machine(), run=show_run(), volumes=volumes
    )

    assert decide_machine(instance, observed).run


def test_stopped_machine_is_halted_and_its_size_may_be_unknown() -> None:
    instance = parse_instance(power="Stopped")
    observed = show_world(size=None, disks=[show_disk()], machine=show_machine(), run=show_run())

    made = machine_of(instance, observed)

    assert made is not None
    assert made["runStrategy"] == "Halted"
    assert made["template"]["spec"]["domain"]["cpu"]["sockets"] == 2


def test_restart_ends_exactly_the_run_that_it_names() -> None:
    instance = parse_instance(directives=[build_directive("Restart", vmiUID="run-1")])

    def observe(run: Run | None) -> Observed:
        return show_world(disks=[show_disk()], machine=show_machine(), run=run)

    (step,) = steps(instance, observe(show_run("run-1")), Delete)
    assert (step.kind, step.uid) == (VIRTUAL_MACHINE_INSTANCE, "run-1")
    for later in (show_run("run-2"), show_run("run-1", deleting=True), None):
        assert steps(instance, observe(later), Delete) == []


def test_other_disk_is_swapped_in_only_while_the_machine_is_known_to_be_off() -> None:
    directive = build_directive("RootDisk", disk="web-root-2", use="Boot")
    instance = parse_instance(directives=[directive])
    disks = [show_disk(), show_disk("web-root-2")]

    def decide(machine: Any, run: Any) -> tuple[str, bool]:
        observed = show_world(disks=disks, machine=machine, run=run)
        decision = decide_machine(instance, observed)
        return decision.disk, decision.run

    halted = show_machine(strategy="Halted")
    assert decide(show_machine(), show_run()) == ("web-root", False), "halt first"
    assert decide(halted, show_run()) == ("web-root", False), "its run is still there"
    unseen = show_machine(strategy="Halted", generation=3, observed_generation=2)
    assert decide(unseen, None) == ("web-root", False), "KubeVirt may yet start one"
    created = show_machine(strategy="Halted", created=True)
    assert decide(created, None) == ("web-root", False), "KubeVirt says there is one"
    assert decide(halted, None) == ("web-root-2", False), "swap while it is off"
    swapped = show_machine(strategy="Halted", disk="web-root-2")
    assert decide(swapped, None) == ("web-root-2", True), "and only then start"


def test_disk_that_is_prepared_or_not_filled_changes_nothing_for_the_machine() -> None:
    prepare = parse_instance(directives=[build_directive("RootDisk", disk="new", use="Prepare")])
    boot = parse_instance(directives=[build_directive("RootDisk", disk="new", use="Boot")])
    full, empty = show_disk("new"), show_disk("new", usable=False)
    machine, run = show_machine(), show_run()

    for instance, new in ((prepare, full), (prepare, empty), (boot, empty)):
        observed = show_world(disks=[show_disk(), new], machine=machine, run=run)
        assert decide_machine(instance, observed).disk == "web-root"
        assert decide_machine(instance, observed).run


def test_prepared_disk_is_made_of_the_image_of_the_directive() -> None:
    image = {"registry": "docker://example.com/new"}
    directive = build_directive("RootDisk", disk="new", use="Prepare", image=image)
    instance = parse_instance(directives=[directive])

    (step,) = steps(instance, show_world(disks=[show_disk()]), Create)

    assert step.manifest["metadata"]["name"] == "new"
    assert step.manifest["spec"]["source"] == {"registry": {"url": "docker://example.com/new"}}


def test_old_disk_goes_only_when_the_machine_is_seen_to_run_without_it() -> None:
    """The root of all rebuilds: the old disk is there until the new one is proven."""
    instance = parse_instance()
    disks = [show_disk(), show_disk("new")]
    moved = show_machine(disk="new")

    def retired(run: Any, machine: Any = moved, instance: Instance = instance) -> list[str]:
        observed = show_world(disks=disks, machine=machine, run=run)
        return [step.key.name for step in steps(instance, observed, Delete)]

    assert retired(show_run(disk="new")) == ["web-root"]
    assert retired(show_run(disk="new", ready=False)) == []
    assert retired(show_run(disk="web-root")) == []
    assert retired(None) == []
    held = parse_instance(directives=[build_directive("RootDisk", disk="new", use="Boot")])
    assert retired(show_run(disk="new"), instance=held) == [], "a directive may want to go back"
    off = show_machine(disk="new", strategy="Halted")
    assert retired(None, machine=off, instance=parse_instance(power="Stopped")) == ["web-root"]


def test_machine_remembers_its_disk_when_directive_and_status_are_lost() -> None:
    """`kubectl replace` takes directives away, a restore from backup the status."""
    observed = show_world(disks=[show_disk("new")], machine=show_machine(disk="new"))
    assert decide_machine(parse_instance(), observed).disk == "new"

    without = show_world(disks=[show_disk("new")])
    assert decide_machine(parse_instance(), without).disk == "new"


def test_change_of_size_is_a_change_of_the_machine() -> None:
    observed = show_world(size=LARGE, disks=[show_disk()], machine=show_machine(), run=show_run())

    made = machine_of(parse_instance(), observed)

    assert made is not None
    assert made["template"]["spec"]["domain"]["cpu"]["sockets"] == 4
    assert made["runStrategy"] == "Always"


def test_nothing_is_done_where_kubevirt_is_not_served() -> None:
    assert plan_instance(parse_instance(), Observed(missing_apis=("virtualmachines",))) == ()


def test_volume_that_is_not_ready_stays_as_the_machine_has_it() -> None:
    volumes = [{"name": "data", "demoVolume": "data"}, {"name": "logs", "claim": "logs"}]
    instance = parse_instance(volumes=volumes)
    found = Volumes({"logs": "logs"}, ("DemoVolume data of spec.volumes is not ready",))
    machine = show_machine(claims={"data": "data-claim"})
    observed = show_world(disks=[show_disk()], machine=machine, run=show_run(), volumes=found)

    made = machine_of(instance, observed)

    assert made is not None
    claims = [item.get("persistentVolumeClaim") for item in made["template"]["spec"]["volumes"]]
    assert claims[2:] == [{"claimName": "data-claim"}, {"claimName": "logs"}]


def test_claim_that_mode_auto_made_is_kept_for_mode_claim() -> None:
    instance = parse_instance(publicIP={"mode": "Claim", "claimName": "web-public"})
    claim = build_public_claim(parse_instance(publicIP={"mode": "Auto", "poolName": "public"}))
    claim["metadata"] |= {"uid": "claim-1", "resourceVersion": "1"}
    observed = show_world(disks=[show_disk()], machine=show_machine(), claim_manifest=claim)

    assert steps(instance, observed, Delete) == []
    (step,) = steps(instance, observed, Patch)
    patched = apply_json_patch(claim, step.operations)
    assert not is_ours(patched, UID), "it goes with the Instance no more"
    released = show_world(disks=[show_disk()], machine=show_machine(), claim_manifest=patched)
    assert steps(instance, released, Patch) == []

    nothing = parse_instance(publicIP={"mode": "None"})
    assert [step.uid for step in steps(nothing, observed, Delete)] == ["claim-1"]

"""Decisions about an Instance."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.conditions import Condition
from libs.common.kinds import Key
from libs.common.plan import Apply, Create, Delete, Patch
from libs.common.testing.fakeapi.patches import apply_json_patch
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from libs.contracts.network import FirewallView, NetworkView
from operators.compute.api.instance import INSTANCE, Instance
from operators.compute.instance.facts import evaluate_extras, evaluate_provisioned
from operators.compute.instance.observed import Observed, Run, Volumes
from operators.compute.instance.reconcile import (
    decide_machine,
    plan_instance,
    seconds_to_rerun,
)
from operators.compute.instance.resources import build_disk, build_public_claim
from operators.compute.marks import is_ours
from operators.compute.samples import (
    LARGE,
    UID,
    build_directive,
    build_observation,
    parse_instance,
    show_disk,
    show_machine,
    show_run,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FIREWALL = FirewallView(Key("default", "web"), "f", False, "", True, frozenset())


def steps(instance: Instance, observed: Observed, kind: type) -> list[Any]:
    return [
        action.step
        for action in plan_instance(instance, observed, NOW)
        if type(action.step) is kind
    ]


def machine_of(instance: Instance, observed: Observed) -> dict[str, Any] | None:
    applied = [step for step in steps(instance, observed, Apply) if step.kind == VIRTUAL_MACHINE]
    return applied[0].manifest["spec"] if applied else None


def test_disk_comes_first_and_the_machine_once_it_is_filled() -> None:
    instance = parse_instance()

    nothing = build_observation()
    assert [str(step) for step in steps(instance, nothing, Create)] == [
        "create DataVolume default/web-root"
    ]
    assert machine_of(instance, nothing) is None
    assert machine_of(instance, build_observation(disks=[show_disk(filled=False)])) is None

    made = machine_of(instance, build_observation(disks=[show_disk()]))
    assert made is not None
    assert made["runStrategy"] == "Once"
    # Soft reboots and shutdowns press the power button.
    assert made["template"]["spec"]["domain"]["features"] == {"acpi": {"enabled": True}}


def test_fields_that_only_a_rebuild_applies_are_named() -> None:
    """Upstream: kubevirt/kubevirt#10045."""
    instance = parse_instance()
    manifest = build_disk(instance, "web-root", instance.spec.image, "10Gi")
    observed = build_observation(disks=[replace(show_disk(), manifest=manifest)])

    def told(instance: Instance, observed: Observed = observed) -> str:
        found = evaluate_extras(instance, observed)
        return "".join(each.message for each in found if each.type == "RebuildPending")

    assert told(instance) == ""
    other = {"url": "https://images.example.com/other.qcow2"}
    assert f"was filled from {instance.spec.image}, and spec.image is {other['url']}" in told(
        parse_instance(image=other)
    )
    assert "has 10Gi, and its size asks for 80Gi" in told(parse_instance(rootDisk={"size": "80Gi"}))
    assert "asks for 80Gi" in told(instance, replace(observed, disk_size="80Gi"))
    assert told(instance, replace(observed, disk_size="5Gi")) == ""
    assert told(instance, replace(observed, disk_size="")) == "", "its size does not exist"
    boot = build_directive("RootDisk", disk="other", use="Boot")
    assert told(parse_instance(image=other, directives=[boot])) == ""
    keys = {"authorizedKeys": ["ssh-ed25519 AAAA"]}
    assert "another spec.ssh" in told(parse_instance(ssh=keys))


@pytest.mark.parametrize("source", ["url", "registry"])
def test_credentials_and_authorities_of_an_image_are_those_of_its_disk(source: str) -> None:
    address = "https://images.example.com/a.qcow2" if source == "url" else "docker://example.com/a"
    plain = {source: address}
    private = {**plain, "secretName": "pull", "caConfigMapName": "ca"}
    instance = parse_instance(image=private)
    manifest = build_disk(instance, "web-root", instance.spec.image, "10Gi")
    (fields,) = manifest["spec"]["source"].values()
    assert fields == {"url": address, "secretRef": "pull", "certConfigMap": "ca"}

    observed = build_observation(disks=[replace(show_disk(), manifest=manifest)])
    found = evaluate_extras(parse_instance(image=plain), observed)
    assert "RebuildPending" not in {each.type for each in found}, "the content is the same"


def test_preference_chooses_what_the_template_leaves_open() -> None:
    observed = build_observation(disks=[show_disk()])
    plain = machine_of(parse_instance(), observed)
    windows = parse_instance(preference={"name": "windows.11"})
    assert machine_of(windows, observed) is None, "KubeVirt would neither start nor stop it"
    made = machine_of(windows, replace(observed, preference_exists=True))

    assert plain is not None
    assert made is not None
    assert "preference" not in plain
    assert made["preference"] == {
        "kind": "VirtualMachineClusterPreference",
        "name": "windows.11",
    }
    for spec, disk in ((plain, {"bus": "virtio"}), (made, {})):
        disks = spec["template"]["spec"]["domain"]["devices"]["disks"]
        assert [each["disk"] for each in disks] == [disk] * 2


DATA = [{"name": "data", "claim": "data"}]
RESTARTED = "the importer was restarted 3 times"
NOT_FOUND = "Unable to connect to http data source: expected status code 200, got 404"
NO_MODE = "no accessMode specified in StorageProfile standard"
QUOTA = "ErrExceededQuota: exceeded quota: small, requested: requests.storage=10Gi"
STORAGE = (
    "waits for its storage; if this takes long, the Events of PersistentVolumeClaim web-root show "
    "the cause, such as a StorageClass that does not exist"
)
REMEDY = "set spec.rootDisk.accessModes, or complete the StorageProfile of its StorageClass"


@pytest.mark.parametrize(
    ("reported", "reason", "words"),
    [
        ({}, "Provisioning", "is being filled"),
        ({"progress": "40 %"}, "Provisioning", "is being filled (40 %)"),
        (
            {"progress": "0 %", "restarts": 3},
            "Provisioning",
            f"is being filled (0 %; {RESTARTED})",
        ),
        (
            {"restarts": 3, "last_error": NOT_FOUND},
            "ImportRetrying",
            f"is being filled ({RESTARTED}; CDI reports: {NOT_FOUND})",
        ),
        ({"waits": True}, "Provisioning", STORAGE),
        (
            {"waits": True, "last_error": QUOTA},
            "ImportRetrying",
            f"is being filled (CDI reports: {QUOTA})",
        ),
        ({"refusal": NO_MODE}, "StorageRefused", f"is not created by CDI: {NO_MODE}; {REMEDY}"),
    ],
    ids=["nothing told", "progress", "restarts", "no image", "no storage", "quota", "refused"],
)
def test_disk_that_is_filled_says_how_far_it_is(
    reported: dict[str, Any], reason: str, words: str
) -> None:
    observation = build_observation(disks=[show_disk(filled=False, **reported)])

    provisioned = evaluate_provisioned(parse_instance(), observation)

    assert provisioned == Condition.false("Provisioned", reason, f"the disk web-root {words}")


def test_machine_is_not_started_before_its_firewall_protects_it() -> None:
    instance = parse_instance(firewallRef={"name": "web"})
    disks = [show_disk()]
    covers = FirewallView(Key("default", "web"), "f", False, "", False, frozenset({UID}))

    assert machine_of(instance, build_observation(disks=disks)) is None
    assert machine_of(instance, build_observation(disks=disks, firewall=FIREWALL)) is None
    # Also with rules that it cannot express, since all is closed.
    assert machine_of(instance, build_observation(disks=disks, firewall=covers)) is not None


def test_machine_is_not_started_before_its_network_is_separated() -> None:
    instance = parse_instance(networkRef={"name": "lan"})
    key = Key("default", "lan")
    open_ = NetworkView(key, "n", False, "PodNetwork", False, "", ())
    closed = NetworkView(key, "n", False, "PodNetwork", True, "", ())

    assert machine_of(instance, build_observation(disks=[show_disk()], network=open_)) is None
    assert machine_of(instance, build_observation(disks=[show_disk()], network=closed)) is not None


def test_machine_that_runs_is_not_stopped_for_what_it_should_have_waited_for() -> None:
    instance = parse_instance(firewallRef={"name": "gone"})
    volumes = Volumes({}, ("DemoVolume data of spec.volumes is not ready",))
    observed = build_observation(
        disks=[show_disk()], machine=show_machine(), run=show_run(), volumes=volumes
    )

    assert decide_machine(instance, observed).run


def test_stopped_machine_is_halted_and_its_size_may_be_unknown() -> None:
    instance = parse_instance(power="Stopped")
    observed = build_observation(
        size=None, disks=[show_disk()], machine=show_machine(), run=show_run()
    )

    made = machine_of(instance, observed)

    assert made is not None
    assert made["runStrategy"] == "Halted"
    assert made["template"]["spec"]["domain"]["cpu"]["sockets"] == 2


def test_restart_ends_exactly_the_run_that_it_names() -> None:
    instance = parse_instance(directives=[build_directive("Restart", vmiUID="run-1")])

    def observe(run: Run | None) -> Observed:
        return build_observation(disks=[show_disk()], machine=show_machine(), run=run)

    (step,) = steps(instance, observe(show_run("run-1")), Delete)
    assert (step.kind, step.uid) == (VIRTUAL_MACHINE_INSTANCE, "run-1")
    for later in (show_run("run-2"), show_run("run-1", deleting=True), None):
        assert steps(instance, observe(later), Delete) == []


OFF = (
    # As recorded of KubeVirt after a change of the template that no run was started with.
    {"desiredGeneration": 18, "observedGeneration": 17, "printableStatus": "Stopped"},
    {"observedGeneration": 4, "printableStatus": "Stopped"},
    # As releases before `status.runStrategy` say it.
    {"runStrategy": None, "observedGeneration": 17, "printableStatus": "Stopped"},
)


def test_other_disk_is_swapped_in_only_while_the_machine_is_known_to_be_off() -> None:
    directive = build_directive("RootDisk", disk="web-root-2", use="Boot")
    instance = parse_instance(directives=[directive])
    disks = [show_disk(), show_disk("web-root-2")]

    def decide(machine: Any, run: Any) -> tuple[str, bool]:
        observed = build_observation(disks=disks, machine=machine, run=run)
        decision = decide_machine(instance, observed)
        return decision.disk, decision.run

    halted = show_machine(strategy="Halted")
    assert decide(show_machine(), show_run()) == ("web-root", False), "halt first"
    assert decide(halted, show_run()) == ("web-root", False), "its run is still there"
    unseen = show_machine(strategy="Halted", status={"runStrategy": "Once"})
    assert decide(unseen, None) == ("web-root", False), "KubeVirt may yet start one"
    created = show_machine(strategy="Halted", created=True)
    assert decide(created, None) == ("web-root", False), "KubeVirt says there is one"
    assert decide(halted, None) == ("web-root-2", False), "swap while it is off"
    for status in OFF:
        off = show_machine(strategy="Halted", generation=18, status=status)
        assert decide(off, None) == ("web-root-2", False), "whatever generation ran last"
    early = show_machine(strategy="Halted", disk="web-root-2")
    assert decide(early, show_run(disk="web-root")) == ("web-root-2", False), "a run too early"
    swapped = show_machine(strategy="Halted", disk="web-root-2")
    assert decide(swapped, None) == ("web-root-2", True), "and only then start"


def test_disk_that_is_prepared_or_not_filled_changes_nothing_for_the_machine() -> None:
    prepare = parse_instance(directives=[build_directive("RootDisk", disk="new", use="Prepare")])
    boot = parse_instance(directives=[build_directive("RootDisk", disk="new", use="Boot")])
    full, empty = show_disk("new"), show_disk("new", filled=False)
    machine, run = show_machine(), show_run()

    for instance, new in ((prepare, full), (prepare, empty), (boot, empty)):
        observed = build_observation(disks=[show_disk(), new], machine=machine, run=run)
        assert decide_machine(instance, observed).disk == "web-root"
        assert decide_machine(instance, observed).run


def test_prepared_disk_is_made_of_the_image_of_the_directive() -> None:
    image = {"registry": "docker://example.com/new"}
    directive = build_directive("RootDisk", disk="new", use="Prepare", image=image)
    instance = parse_instance(directives=[directive])

    (step,) = steps(instance, build_observation(disks=[show_disk()]), Create)

    assert step.manifest["metadata"]["name"] == "new"
    assert step.manifest["spec"]["source"] == {"registry": {"url": "docker://example.com/new"}}


def test_disk_that_is_made_of_a_snapshot_has_the_size_of_the_snapshot() -> None:
    """CDI refuses a smaller disk, and adds the overhead of a file system only to a new one."""
    directive = build_directive("RootDisk", disk="new", use="Prepare", image={"snapshot": "kept"})
    instance = parse_instance(directives=[directive])

    (step,) = steps(instance, build_observation(disks=[show_disk()]), Create)

    assert step.manifest["spec"]["source"]["snapshot"]["name"] == "kept"
    assert "resources" not in step.manifest["spec"]["storage"]


def test_machine_remembers_its_disk_when_directive_and_status_are_lost() -> None:
    """`kubectl replace` takes directives away, a restore from backup the status."""
    observed = build_observation(disks=[show_disk("new")], machine=show_machine(disk="new"))
    assert decide_machine(parse_instance(), observed).disk == "new"

    without = build_observation(disks=[show_disk("new")])
    assert decide_machine(parse_instance(), without).disk == "new"


def test_change_of_size_is_a_change_of_the_machine() -> None:
    observed = build_observation(
        size=LARGE, disks=[show_disk()], machine=show_machine(), run=show_run()
    )

    made = machine_of(parse_instance(), observed)

    assert made is not None
    assert made["template"]["spec"]["domain"]["cpu"]["sockets"] == 4
    assert made["runStrategy"] == "Once"


def test_nothing_is_done_where_kubevirt_is_not_served() -> None:
    assert plan_instance(parse_instance(), Observed(missing_apis=("virtualmachines",)), NOW) == ()


def test_volume_that_is_not_ready_stays_as_the_machine_has_it() -> None:
    volumes = [{"name": "data", "demoVolume": "data"}, {"name": "logs", "claim": "logs"}]
    instance = parse_instance(volumes=volumes)
    found = Volumes({"logs": "logs"}, ("DemoVolume data of spec.volumes is not ready",))
    machine = show_machine(claims={"data": "data-claim"})
    observed = build_observation(
        disks=[show_disk()], machine=machine, run=show_run(), volumes=found
    )

    made = machine_of(instance, observed)

    assert made is not None
    claims = [item.get("persistentVolumeClaim") for item in made["template"]["spec"]["volumes"]]
    assert claims[2:] == [{"claimName": "data-claim"}, {"claimName": "logs"}]


def test_claim_that_mode_auto_made_is_kept_for_mode_claim() -> None:
    instance = parse_instance(publicIP={"mode": "Claim", "claimName": "web-public"})
    claim = build_public_claim(parse_instance(publicIP={"mode": "Auto", "poolName": "public"}))
    claim["metadata"] |= {"uid": "claim-1", "resourceVersion": "1"}
    observed = build_observation(disks=[show_disk()], machine=show_machine(), claim_manifest=claim)

    assert steps(instance, observed, Delete) == []
    (step,) = [each for each in steps(instance, observed, Patch) if each.kind == IP_CLAIM]
    patched = apply_json_patch(claim, step.operations)
    assert not is_ours(patched, UID), "it goes with the Instance no more"
    released = build_observation(
        disks=[show_disk()], machine=show_machine(), claim_manifest=patched
    )
    assert [each.kind for each in steps(instance, released, Patch)] == [INSTANCE], "the record"

    nothing = parse_instance(publicIP={"mode": "None"})
    assert [step.uid for step in steps(nothing, observed, Delete)] == ["claim-1"]


def test_disk_says_how_nodes_may_mount_it() -> None:
    disk = {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "fast"}

    (step,) = steps(parse_instance(rootDisk=disk), build_observation(), Create)
    (plain,) = steps(parse_instance(), build_observation(), Create)

    request = {"resources": {"requests": {"storage": "10Gi"}}}
    assert step.manifest["spec"]["storage"] == {**request, **disk}
    assert plain.manifest["spec"]["storage"] == request


def test_disk_that_cdi_refuses_is_created_again_as_the_spec_says_by_now() -> None:
    """CDI creates no claim for it, and the spec of a DataVolume never changes."""
    before = {"resources": {"requests": {"storage": "10Gi"}}}
    refused = show_disk(filled=False, refusal="no accessMode specified", storage=before)
    going = show_disk(filled=False, storage=before)
    fixed = parse_instance(rootDisk={"accessModes": ["ReadWriteOnce"]})

    (step,) = steps(fixed, build_observation(disks=[refused]), Delete)
    assert (step.key.name, step.uid) == ("web-root", "uid-web-root")
    assert steps(parse_instance(), build_observation(disks=[refused]), Delete) == []
    assert steps(fixed, build_observation(disks=[going]), Delete) == []


@pytest.mark.parametrize(
    ("binding", "field", "annotations"),
    [
        ("Masquerade", "masquerade", None),
        ("Bridge", "bridge", {"kubevirt.io/allow-pod-bridge-network-live-migration": "true"}),
        ("Passt", "passtBinding", None),
    ],
)
def test_machine_is_bound_to_the_pod_network_as_its_network_says(
    binding: str, field: str, annotations: dict[str, str] | None
) -> None:
    view = NetworkView(
        Key("default", "lan"), "n", False, "PodNetwork", True, "", (), binding=binding
    )
    instance = parse_instance(networkRef={"name": "lan"})

    made = machine_of(instance, build_observation(disks=[show_disk()], network=view))

    assert made is not None
    (interface,) = made["template"]["spec"]["domain"]["devices"]["interfaces"]
    assert interface[field] == {}
    assert made["template"]["metadata"].get("annotations") == annotations
    assert made["template"]["metadata"]["labels"]["compute.slipway.dev/network"] == "lan"


def test_machine_without_network_carries_no_label_of_one() -> None:
    made = machine_of(parse_instance(), build_observation(disks=[show_disk()]))

    assert made is not None
    assert "compute.slipway.dev/network" not in made["template"]["metadata"]["labels"]
    (interface,) = made["template"]["spec"]["domain"]["devices"]["interfaces"]
    assert interface["masquerade"] == {}
    # A guest without ACPI never learns that it should shut down.
    assert made["template"]["spec"]["domain"]["features"]["acpi"] == {"enabled": True}


@pytest.mark.parametrize(
    ("strategy", "phase", "shut_down", "retry_after", "deleted"),
    [
        ("Once", "Failed", False, "", True),
        ("Once", "Succeeded", False, "", True),
        ("Once", "Succeeded", True, "", False),
        ("Once", "Running", False, "", False),
        ("Once", "Failed", False, "2026-01-01T00:00:30Z", False),
        ("Once", "Failed", False, "2025-12-31T23:59:59Z", True),
        ("Always", "Failed", False, "", False),
        ("Halted", "Succeeded", False, "", False),
    ],
)
def test_run_that_ended_is_followed_by_another_unless_its_guest_chose_to_be_off(
    strategy: str, phase: str, shut_down: bool, retry_after: str, deleted: bool
) -> None:
    failures = {"startFailure": {"consecutiveFailCount": 1, "retryAfterTimestamp": retry_after}}
    machine = show_machine(strategy=strategy, status=failures if retry_after else None)
    observation = build_observation(
        disks=[show_disk()],
        machine=machine,
        run=show_run(ready=False, phase=phase),
        shut_down=shut_down,
    )
    steps = [action.step for action in plan_instance(parse_instance(), observation, NOW)]
    ended = [
        step for step in steps if isinstance(step, Delete) and step.kind == VIRTUAL_MACHINE_INSTANCE
    ]

    assert [step.uid for step in ended] == (["run-1"] if deleted else [])
    waits = seconds_to_rerun(observation, NOW)
    assert waits == (0 if deleted else 30 if strategy == "Once" and "30Z" in retry_after else None)

"""The promises of the plan under any order of crashes, outdated views and edits of other clients.

The simulation contains one DemoVolume, one claim name, and all clients that can change them: users,
the volume controllers, pods, the garbage collector and other owners. The operator watches each kind
separately, with delays and in no common order, acts on its outdated view, and can crash after any
step.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from libs.common.kinds import Manifest
from libs.common.ownership import controller_of, controller_uid
from libs.common.plan import Create, Delete, Patch, Step
from libs.common.quantity import parse_quantity, render_quantity
from libs.common.testing.fakeapi.patches import PatchError, apply_json_patch
from libs.contracts.claims import ClaimUser, ClaimView
from libs.contracts.snapshots import VolumeSnapshotView
from operators.volumes.api.parts import parse_size
from operators.volumes.api.v1alpha1 import DemoVolume
from operators.volumes.naming import FINALIZER, KEPT_FOR, last_snapshot_name
from operators.volumes.observed import Observed, is_ours
from operators.volumes.reconcile import plan_finalize, plan_volume
from operators.volumes.samples import (
    EXPANDABLE,
    RIGID,
    build_foreign_claim,
    build_statefulset_owner,
    build_volume,
)


class Simulation:
    """One DemoVolume, its claim and their environment, with the actions of the operator."""

    def __init__(self) -> None:
        """Start with an empty namespace."""
        self.uids = (f"uid-{number}" for number in itertools.count())
        self.versions = itertools.count(1)
        self.volume: Manifest | None = None
        self.claim: Manifest | None = None
        self.snapshots: dict[str, Manifest] = {}
        self.pods: set[str] = set()
        self.expandable = True
        self.seen_volume: Manifest | None = None
        self.last_observed = Observed()
        self.kept: set[str] = set()
        self.destroyed: set[str] = set()
        self.has_converged = False

    # The API server.

    def take(self, step: Step) -> bool:
        """Execute one step as the API server would; return whether it was accepted."""
        match step:
            case Create() if step.kind.kind == "VolumeSnapshot":
                self.snapshots.setdefault(step.key.name, copy.deepcopy(step.manifest))
                return True
            case Create():
                return self._create(step.manifest)
            case Patch():
                return self._patch(step)
            case Delete():
                return self._delete(step.uid, step.resource_version)
            case _:
                raise AssertionError(f"unexpected {step}")

    def _create(self, manifest: Manifest) -> bool:
        if self.claim is not None:
            return False
        self.claim = copy.deepcopy(manifest)
        self.claim["metadata"]["uid"] = next(self.uids)
        self.claim["spec"].setdefault("storageClassName", "standard")
        self.claim["status"] = {"phase": "Pending"}
        self._touch()
        return True

    def _patch(self, step: Patch) -> bool:
        held = self.claim
        if held is None or held["metadata"]["uid"] != step.uid:
            return False
        version = held["metadata"]["resourceVersion"]
        if step.resource_version and step.resource_version != version:
            return False
        try:
            patched: Manifest = apply_json_patch(held, step.operations)
        except PatchError:
            return False
        if not self._may_request(ClaimView.parse(held), ClaimView.parse(patched)):
            return False
        self.claim = patched
        self._touch()
        return True

    def _may_request(self, before: ClaimView, after: ClaimView) -> bool:
        assert before.requested is not None
        assert after.requested is not None
        if after.requested == before.requested:
            return True
        if before.capacity is None:
            return False
        if after.requested > before.requested:
            return self.expandable
        return after.requested > before.capacity

    def _delete(self, uid: str, version: str = "") -> bool:
        if self.claim is None or self.claim["metadata"]["uid"] != uid:
            return True
        if version and version != self.claim["metadata"]["resourceVersion"]:
            return False
        if self.pods:
            self.claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._touch()
        else:
            self.destroyed.add(uid)
            self.claim = None
        return True

    def _touch(self) -> None:
        assert self.claim is not None
        self.claim["metadata"]["resourceVersion"] = str(next(self.versions))

    # The operator.

    def observe_now(self) -> Observed:
        """Return the current state of the claim and its environment."""
        if self.claim is None:
            return Observed()
        claim = ClaimView.parse(copy.deepcopy(self.claim))
        owner = controller_of(self.claim)
        snapshot = self.snapshots.get(last_snapshot_name(claim))
        return Observed(
            claim=claim,
            holder=str(owner["name"]) if owner else "",
            storage_class=EXPANDABLE if self.expandable else RIGID,
            users=tuple(ClaimUser(pod, finished=False) for pod in sorted(self.pods)),
            snapshot=None if snapshot is None else VolumeSnapshotView.parse(snapshot),
        )

    def act(self, steps: int) -> None:
        """Reconcile based on the view, and crash after some steps."""
        if self.seen_volume is None:
            return
        volume, observed = DemoVolume.parse(self.seen_volume), self.last_observed
        if volume.metadata.is_deleting:
            # The controller reads the claim from the API server in this case.
            observed = self.observe_now()
            final = plan_finalize(volume, observed)
            if final.done:
                self._remove_finalizer(volume)
                return
            actions = final.actions
        else:
            plan = plan_volume(volume, observed)
            if plan.takes_over and not self._is_confirmed(volume):
                return
            actions = plan.actions
        for action in actions[:steps]:
            self._check(action.step, volume, observed)
            if not self.take(action.step):
                return

    def _is_confirmed(self, volume: DemoVolume) -> bool:
        live = self.volume
        return (
            live is not None
            and live["metadata"]["uid"] == volume.metadata.uid
            and live["metadata"]["generation"] == volume.metadata.generation
            and "deletionTimestamp" not in live["metadata"]
        )

    def _remove_finalizer(self, volume: DemoVolume) -> None:
        live = self.volume
        if live is not None and live["metadata"]["uid"] == volume.metadata.uid:
            live["metadata"]["finalizers"] = [
                name for name in live["metadata"]["finalizers"] if name != FINALIZER
            ]
            self._delete_if_finalized()

    def _check(self, step: Step, volume: DemoVolume, observed: Observed) -> None:
        """Check the invariants of each write, which must hold for any outdated view."""
        if isinstance(step, Create):
            return
        claim = observed.claim
        assert claim is not None
        assert isinstance(step, Patch | Delete)
        assert step.uid == claim.uid, "a step names the UID of the observed claim"
        owners = {reference["uid"] for reference in claim.owner_references}
        ours = volume.metadata.uid
        assert not owners or ours in owners, "claims of other owners are never changed"
        assert owners <= {ours} or isinstance(step, Patch), "nor deleted if there are other owners"
        if isinstance(step, Patch):
            self._check_size(step, claim)
            return
        assert owners or claim.annotations.get(KEPT_FOR) == volume.metadata.uid
        if not claim.volume_name and not volume.metadata.is_deleting:
            assert step.resource_version == claim.resource_version, "it may be bound by now"
            return
        assert volume.spec.reclaim_policy != "Retain"
        if volume.spec.reclaim_policy == "Snapshot" and claim.volume_name and not claim.deleting:
            assert observed.snapshot is not None
            assert observed.snapshot.ready

    def _check_size(self, step: Patch, claim: ClaimView) -> None:
        for operation in step.operations:
            if operation["path"].endswith("/storage") and operation["op"] == "replace":
                size = parse_quantity(operation["value"])
                assert claim.requested is not None
                assert claim.capacity is not None
                assert size > claim.requested or size > claim.capacity, "a volume never shrinks"

    def observe_all(self) -> None:
        """Bring the view up to date, and write the status."""
        self.last_observed = self.observe_now()
        claim, live = self.last_observed.claim, self.volume
        self.seen_volume = None
        if live is None:
            return
        live["status"] = {"conditions": []}
        if claim is not None and is_ours(DemoVolume.parse(live), claim):
            live["status"]["pvcRef"] = {"name": claim.key.name, "uid": claim.uid}
            if claim.capacity is not None:
                live["status"]["capacity"] = render_quantity(claim.capacity)
        self.seen_volume = copy.deepcopy(live)

    def converge(self) -> None:
        """Run the operator without other clients until the volume has converged."""
        for _ in range(12):
            before = copy.deepcopy((self.volume, self.claim, self.snapshots))
            self.observe_all()
            self.act(steps=9)
            if before == (self.volume, self.claim, self.snapshots):
                break
        else:
            raise AssertionError("the operator does not converge")
        if self.volume is not None and "deletionTimestamp" not in self.volume["metadata"]:
            volume = DemoVolume.parse(self.volume)
            assert plan_volume(volume, self.observe_now()).actions == ()
            self.has_converged = True

    def _delete_if_finalized(self) -> None:
        assert self.volume is not None
        metadata = self.volume["metadata"]
        if "deletionTimestamp" in metadata and not metadata["finalizers"]:
            self.volume = None


POLICIES = st.sampled_from(["Delete", "Retain", "Snapshot"])
SIZES = st.sampled_from([5, 10, 20, "15675Mi", "16Gi", 1000])


class VolumeMachine(Simulation, RuleBasedStateMachine):
    """Do anything to a DemoVolume and its claim, in any order."""

    def __init__(self) -> None:
        """Begin with an empty namespace."""
        RuleBasedStateMachine.__init__(self)
        Simulation.__init__(self)

    # The operator.

    @rule(steps=st.integers(0, 3))
    def operator_passes(self, steps: int) -> None:
        """Reconcile from the last observed state, and crash in the middle."""
        self.act(steps)

    @rule(steps=st.integers(0, 3))
    def operator_restarts(self, steps: int) -> None:
        """Reconcile from the current state."""
        self.observe_all()
        self.act(steps)

    @rule()
    def operator_hears_of_the_volume(self) -> None:
        """Hear of the volume, but not of what is around it."""
        self.seen_volume = copy.deepcopy(self.volume)

    @rule()
    def operator_hears_of_the_claim(self) -> None:
        """Hear of what is around the volume, but not of the volume."""
        self.last_observed = self.observe_now()

    @rule()
    def operator_has_time(self) -> None:
        """Work without disturbance, then come to rest."""
        self.converge()

    # Users.

    @initialize(policy=POLICIES, size=SIZES)
    def user_begins(self, policy: str, size: Any) -> None:
        """Begin with a DemoVolume, at rest."""
        self.user_creates(policy, size, "Never")
        self.converge()

    @precondition(lambda self: self.volume is None)
    @rule(policy=POLICIES, size=SIZES, adopt=st.sampled_from(["Never", "IfMatching"]))
    def user_creates(self, policy: str, size: Any, adopt: str) -> None:
        """Create the DemoVolume, perhaps again under the same name."""
        self.has_converged = False
        if adopt == "IfMatching":
            self.kept.clear()  # What is taken over is subject to the policy of who takes it.
        self.volume = build_volume(reclaimPolicy=policy, size=size, adopt=adopt)
        self.volume["metadata"] |= {"uid": next(self.uids), "finalizers": [FINALIZER]}

    @precondition(lambda self: self.volume is not None)
    @rule(policy=POLICIES)
    def user_changes_the_policy(self, policy: str) -> None:
        """Change the reclaim policy, even during the deletion."""
        self._edit(reclaimPolicy=policy)

    @precondition(lambda self: self.volume is not None)
    @rule(size=SIZES)
    def user_changes_the_size(self, size: Any) -> None:
        """Ask for another size; the rule of the CRD refuses what shrinks."""
        assert self.volume is not None
        capacity = self.volume.get("status", {}).get("capacity")
        shrinks = parse_size(size) < parse_size(self.volume["spec"]["size"])
        if capacity is None or not shrinks or parse_size(size) >= parse_quantity(capacity):
            self._edit(size=size)

    def _edit(self, **spec: Any) -> None:
        assert self.volume is not None
        self.has_converged = False
        if "reclaimPolicy" in spec and spec["reclaimPolicy"] != "Retain":
            self.kept.clear()
        if any(self.volume["spec"].get(name) != value for name, value in spec.items()):
            self.volume["spec"] |= spec
            self.volume["metadata"]["generation"] += 1

    @precondition(lambda self: self.volume is not None)
    @rule(how=st.sampled_from(["background", "foregroundDeletion", "orphan"]))
    def user_deletes(self, how: str) -> None:
        """Delete the DemoVolume, in each of the three ways."""
        assert self.volume is not None
        metadata = self.volume["metadata"]
        if "deletionTimestamp" in metadata:
            return
        policy = self.volume["spec"]["reclaimPolicy"]
        # Nobody can promise that the collector, which does not wait for finalizers, respects what
        # the operator has not even seen.
        if policy == "Retain" and (self.has_converged or how == "background"):
            self._keep()
        if policy == "Delete" and self.has_converged and how == "orphan":
            self._keep()
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if how != "background":
            metadata["finalizers"] = [*metadata["finalizers"], how]

    def _keep(self) -> None:
        assert self.volume is not None
        uid = self.volume["metadata"]["uid"]
        metadata = self.claim["metadata"] if self.claim is not None else {}
        if "deletionTimestamp" in metadata:
            return  # The user has thrown the data away before; nobody can keep it any more.
        mine = controller_uid({"metadata": metadata}) == uid
        if mine or metadata.get("annotations", {}).get(KEPT_FOR) == uid:
            self.kept.add(metadata["uid"])

    @precondition(lambda self: self.volume is not None)
    @rule()
    def user_tears_the_finalizer_off(self) -> None:
        """Do what people do when an operator is not there any more."""
        assert self.volume is not None
        metadata = self.volume["metadata"]
        if "deletionTimestamp" in metadata:
            if not self.has_converged:
                self.kept.clear()
            metadata["finalizers"] = [name for name in metadata["finalizers"] if name != FINALIZER]
            self._delete_if_finalized()

    @precondition(lambda self: self.claim is not None)
    @rule()
    def user_deletes_the_claim(self) -> None:
        """Delete the claim by hand; that is the user's own will."""
        assert self.claim is not None
        self.kept.discard(self.claim["metadata"]["uid"])
        self._delete(self.claim["metadata"]["uid"])

    @precondition(lambda self: self.claim is not None)
    @rule(what=st.sampled_from(["labels", "annotations", "ownerReferences", "request"]))
    def user_edits_the_claim(self, what: str) -> None:
        """Edit the claim by hand."""
        assert self.claim is not None
        self.has_converged = False
        if what == "request":
            if self.expandable and "capacity" in self.claim["status"]:
                self.claim["spec"]["resources"]["requests"]["storage"] = "3Ti"
        else:
            self.claim["metadata"].pop(what, None)
        self._touch()

    # Everybody else.

    @precondition(lambda self: self.claim is None)
    @rule(owned=st.booleans())
    def others_create_the_claim(self, owned: bool) -> None:
        """Take the name before the operator does."""
        self.has_converged = False
        self.claim = build_foreign_claim(build_statefulset_owner() if owned else None)
        self.claim["metadata"]["uid"] = next(self.uids)
        self._touch()

    @precondition(lambda self: self.claim is not None)
    @rule(mebibytes=st.integers(0, 1))
    def storage_binds_or_grows(self, mebibytes: int) -> None:
        """Make the volume, or grow it, rounded up by the driver."""
        assert self.claim is not None
        if "deletionTimestamp" in self.claim["metadata"]:
            return
        requested = parse_quantity(self.claim["spec"]["resources"]["requests"]["storage"])
        capacity = parse_quantity(self.claim["status"].get("capacity", {}).get("storage", "0"))
        size = max(capacity, requested + mebibytes * 2**20 if capacity < requested else capacity)
        self.claim["spec"]["volumeName"] = "pv-1"
        self.claim["status"] = {"phase": "Bound", "capacity": {"storage": render_quantity(size)}}
        self._touch()

    @rule(expandable=st.booleans())
    def admin_changes_the_class(self, expandable: bool) -> None:
        """Let claims of the class grow, or not."""
        self.expandable = expandable

    @precondition(lambda self: self.snapshots)
    @rule()
    def storage_finishes_snapshots(self) -> None:
        """Make all snapshots ready."""
        for snapshot in self.snapshots.values():
            snapshot["status"] = {"readyToUse": True}

    @rule(pod=st.sampled_from(["web-0", "web-1"]))
    def pods_come_and_go(self, pod: str) -> None:
        """Start or end a pod; the last one lets a deleted claim go."""
        self.pods ^= {pod}
        if self.claim is not None and "deletionTimestamp" in self.claim["metadata"]:
            self._delete(self.claim["metadata"]["uid"])

    @rule()
    def collector_works(self) -> None:
        """Collect garbage as Kubernetes does."""
        finalizers = self.volume["metadata"].get("finalizers", []) if self.volume else []
        claim = self.claim
        references = claim["metadata"].get("ownerReferences", []) if claim is not None else []
        uid = self.volume["metadata"]["uid"] if self.volume else ""
        ours = [reference for reference in references if reference["uid"] != "db-uid"]
        if claim is not None and ours:
            if "orphan" in finalizers and ours[0]["uid"] == uid:
                claim["metadata"].pop("ownerReferences")
                self._touch()
            elif ours[0]["uid"] != uid or "foregroundDeletion" in finalizers:
                self._delete(claim["metadata"]["uid"])
        if self.volume is not None:
            done = {"orphan"} if self.claim is None or not ours or "orphan" in finalizers else set()
            if self.claim is None or ours == [] or ours[0]["uid"] != uid:
                done |= {"foregroundDeletion"}
            self.volume["metadata"]["finalizers"] = [n for n in finalizers if n not in done]
            self._delete_if_finalized()

    # Promises.

    @invariant()
    def data_that_is_to_be_kept_is_there(self) -> None:
        """Retain never loses data, in whatever order things happen."""
        assert not self.kept & self.destroyed

    def teardown(self) -> None:
        """Whatever happened, the operator comes to rest."""
        self.expandable = True
        self.converge()


TestVolumeMachine = VolumeMachine.TestCase
TestVolumeMachine.settings = settings(
    max_examples=300,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

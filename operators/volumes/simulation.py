"""A model of all clients that can change a DemoVolume and its claim, for tests of the planner.

The model contains one DemoVolume, one claim name, and all clients that can change them. The
operator watches each kind separately, with delays and in no common order, acts on its outdated
view, and can crash after any step.
"""

from __future__ import annotations

import copy
import itertools

from libs.common.kinds import Manifest
from libs.common.plan import Create, Delete, Patch, Step
from libs.common.quantity import parse_quantity, render_quantity
from libs.common.testing.fakeapi.patches import PatchError, apply_json_patch
from libs.contracts.claims import ClaimUser, ClaimView
from libs.contracts.snapshots import VolumeSnapshotView
from operators.volumes.api.v1alpha1 import DemoVolume
from operators.volumes.naming import FINALIZER, KEPT_FOR, last_snapshot_name
from operators.volumes.observed import Observed, is_ours
from operators.volumes.reconcile import plan_finalize, plan_volume
from operators.volumes.samples import EXPANDABLE, RIGID


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
        snapshot = self.snapshots.get(last_snapshot_name(claim))
        return Observed(
            claim=claim,
            holder=str(claim.owner["name"]) if claim.owner else "",
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

"""Advice about the reasons of all kinds."""

from __future__ import annotations

import pytest

from kubectl_slipway.diagnosis.advice import ADVICE
from kubectl_slipway.diagnosis.conditions import find_remedy
from kubectl_slipway.model import known_kinds

NO_ADVICE = {
    "DemoVolume": "Adopted AttributesApplied Bound Corrected Created Creating DeletingClaim InSync"
    " Modifying NoConflict Released Replaced Resizing SizeReached SnapshotAPIFound SnapshotOutdated"
    " Snapshotting Terminating",
    # The reasons of single rules are in status.unenforceable, which the advice names.
    "Firewall": "Applied Expressible InForce NotWhollyExpressible OpenElsewhere PolicyMissing"
    " Protected ProtocolUndefined Repaired SecondaryInterface TooLarge",
    "IPAllocation": "Quarantined Returned Surplus",
    "IPClaim": "Allocated Announced Bound FamilyNotServed Migrating Moving NoAddress NotObserved"
    " OwnerReleased Released Restoring Withdrawing",
    "IPPool": "AllInside Allocated Disjoint Restoring Serving SomeFree",
    "Instance": "AddressUnbound Bound Connected DeletingDisk DeletingMachine DiskAdopted"
    " DiskCreated"
    " DiskReplaced DiskRetired EvictionRequested FirewallApplied HotplugInProgress Kept Migratable"
    " Migrating NetworkFound NotRequested ProbeSucceeded Provisioned Provisioning Rebuilding Rerun"
    " Restarted Running Starting Stopping Terminating WithdrawingAddress",
    # While the API does not respond, the reasons that depend on it say so.
    "KubernetesCluster": "Adopted Applied Applying Available Created DeletingNode Draining"
    " Evacuating Healthy InstancesRunning MemberRemoved NodesMissing NotAsked NotChecked Reachable"
    " Rebuilding Recycled"
    " Recycling Renewed Terminating Uncordoned Upgrading Valid VersionSet VersionUnknown"
    " AddressReleased"
    " WaitingForControlPlane",
    # The reasons of single next hops are in status.routes, which the advice names.
    "Network": "Applied FamilyMismatch InPlace InstanceNotFound NoAddress NotAsked OffLink"
    " OtherNetwork PolicyMissing Repaired Resolved",
    "Operation": "Accepted Expired InProgress RollingBack Succeeded",
    "PodSet": "AllAvailable AsExpected MinimumAvailable PodsAdopted PodsCreated PodsDeleted"
    " PodsEnded PodsReleased ScalingDown ScalingUp Updating WaitingForTermination",
    "PrometheusJmxExporter": "AllServing Annotated ConfigAccepted ConfigChanged Healthy Injecting"
    " NoConflict NotReady PodBusy Published Running Started Stopping UidMismatch Updating Waiting",
    "PulsarConsumer": "AllReady Answered BrokerNotAsked Created Delegated DeletingSubscription"
    " Deployed EndingConsumers Exists FollowingBacklog Missing NotAsked Scaled ScalingDown SeekDone"
    " Seeking Settled Starting SubscriptionDeleted Updating WaitingForSubscription",
}
"""Reasons that need no advice: healthy states, events, and work in progress."""


@pytest.mark.parametrize("kind", known_kinds())
def test_reason_has_advice_unless_nobody_has_to_act(kind: str) -> None:
    silent = {reason for reason in known_kinds()[kind]["reasons"] if not find_remedy(kind, reason)}

    assert silent == set(NO_ADVICE.get(kind, "").split())


def test_advice_is_about_reasons_that_exist() -> None:
    kinds = known_kinds()
    every = {reason for kind in kinds.values() for reason in kind["reasons"]}

    for kind, reason in ADVICE:
        assert reason in (kinds[kind]["reasons"] if kind else every), (kind, reason)


def test_advice_names_the_object_and_nothing_else() -> None:
    for advice in ADVICE.values():
        advice.format(name="x", namespace="y")

"""PodSet v1: the kind, its conditions and reasons."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, assert_never

from pydantic import Field

from libs.common.crd import (
    AGE,
    Conditions,
    Count,
    CustomResource,
    DnsLabel,
    DnsSubdomain,
    Immutable,
    IntOrString,
    KubernetesModel,
    LabelSelector,
    ListSet,
    ObjectStatus,
    PodTemplate,
    PrinterColumn,
    Rule,
    Scale,
    Selector,
    Waive,
)

POD_NAMES_LIMIT: Final = 1000
"""Maximum number of names in `status.podNames`."""

_SHARE_RULE: Final = Rule(
    "type(self) == int ? self >= 0 : string(self).matches('^(100|[1-9]?[0-9])%$')",
    "must be a number that is not negative or a percentage such as '25%'",
)

Share = Annotated[IntOrString, _SHARE_RULE]
"""A number of pods, or a percentage of spec.replicas."""
Seconds = Annotated[int, Field(ge=0, le=31_536_000)]
"""A duration in seconds, at most one year."""


class ConditionType(StrEnum):
    """Conditions of a PodSet."""

    READY = "Ready"
    """Ready is True when as many pods are available as spec.replicas asks for, no more exist, and
    no update is under way."""

    AVAILABLE = "Available"
    """Available is True when at least as many pods are available as the update strategy requires:
    spec.replicas less maxUnavailable."""

    PROGRESSING = "Progressing"
    """Progressing is True while pods are created, deleted, replaced or not yet available. It is
    False with reason ProgressDeadlineExceeded if no progress is made for
    spec.progressDeadlineSeconds."""

    REPLICA_FAILURE = "ReplicaFailure"
    """ReplicaFailure is True when the API server refused to create or delete a pod."""

    STALLED = "Stalled"
    """Stalled is True while pods repeatedly fail soon after their start and are replaced after a
    delay, or if the progress deadline is exceeded."""

    CONFLICT = "Conflict"
    """Conflict is True while pods that the set does not own have names of its slots."""


class Reason(StrEnum):
    """Reasons of the conditions and events of a PodSet."""

    ALL_AVAILABLE = "AllAvailable"
    """AllAvailable means that every desired pod is available."""
    SCALING_UP = "ScalingUp"
    """ScalingUp means that pods are being created."""
    SCALING_DOWN = "ScalingDown"
    """ScalingDown means that surplus pods are being deleted."""
    UPDATING = "Updating"
    """Updating means that pods of an older template are being replaced."""
    PODS_NOT_READY = "PodsNotReady"
    """PodsNotReady means that all pods exist, but some are not ready or have not been ready for
    spec.minReadySeconds."""
    TERMINATING = "WaitingForTermination"
    """WaitingForTermination means that pods that are being deleted still occupy the slots of new
    pods."""
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    """ProgressDeadlineExceeded means that for spec.progressDeadlineSeconds no pod was created or
    became ready; the message of Ready names the cause."""
    BACK_OFF = "BackOff"
    """BackOff means that pods failed soon after their start and are replaced after a delay."""
    PAUSED = "Paused"
    """Paused means that spec.paused prevents the operator from updating pods."""
    FAILED_CREATE = "FailedCreate"
    """FailedCreate means that the API server refused to create a pod, for example because of a
    quota, admission control or the template."""
    FAILED_DELETE = "FailedDelete"
    """FailedDelete means that the API server refused to delete a pod."""
    FAILED_UPDATE = "FailedUpdate"
    """FailedUpdate means that the API server refused to change the owner of a pod."""
    NAME_TAKEN = "NameTaken"
    """NameTaken means that a pod that the set does not control has the name of a slot."""
    MINIMUM_AVAILABLE = "MinimumAvailable"
    """MinimumAvailable means that at least the required number of pods is available."""
    MINIMUM_UNAVAILABLE = "MinimumUnavailable"
    """MinimumUnavailable means that fewer pods than required are available."""
    AS_EXPECTED = "AsExpected"
    """AsExpected means that there is nothing to report."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec contradicts itself; the message names the field."""
    PODS_CREATED = "PodsCreated"
    """PodsCreated reports the number of pods that were created."""
    PODS_DELETED = "PodsDeleted"
    """PodsDeleted reports the number of pods that were deleted."""
    PODS_ENDED = "PodsEnded"
    """PodsEnded names a pod that ended and is replaced, and the cause if it is known."""
    PODS_ADOPTED = "PodsAdopted"
    """PodsAdopted reports the number of orphaned pods that were adopted."""
    PODS_RELEASED = "PodsReleased"
    """PodsReleased reports the number of pods that were released because the selector does not
    match them."""


class UpdateType(StrEnum):
    """UpdateType names the ways in which pods of an older template are replaced."""

    ON_DELETE = "OnDelete"
    """OnDelete does not change running pods; a pod that is replaced gets the new template."""
    ROLLING_UPDATE = "RollingUpdate"
    """RollingUpdate replaces the pods step by step."""
    RECREATE = "Recreate"
    """Recreate is the former name of RollingUpdate, with the defaults of version 0.1."""


class PodReplacementPolicy(StrEnum):
    """PodReplacementPolicy defines when a pod that is being deleted is replaced."""

    TERMINATION_STARTED = "TerminationStarted"
    """TerminationStarted replaces a pod immediately, in the next free slot, as a ReplicaSet
    does."""
    TERMINATION_COMPLETE = "TerminationComplete"
    """TerminationComplete waits until the pod no longer exists and fills its slot again."""


class RollingUpdate(KubernetesModel):
    """RollingUpdate limits how many pods are replaced at a time."""

    max_unavailable: Share = "25%"
    """maxUnavailable is the number of pods, or the percentage of spec.replicas rounded down, that
    may be unavailable during the update. It counts as 1 if maxSurge is 0 as well. Defaults to
    25%."""

    max_surge: Share = "25%"
    """maxSurge is the number of pods, or the percentage of spec.replicas rounded up, that may exist
    in addition to spec.replicas during the update. More than spec.replicas counts as spec.replicas.
    Defaults to 25%, so that a set of one pod has its new pod before the old one is deleted."""

    partition: Share = 0
    """partition is the number of pods, or the percentage of spec.replicas rounded up, that keep
    their older template; lower it step by step to try a template on a few pods first. Defaults to
    0."""


class RecreateUpdate(RollingUpdate):
    """RecreateUpdate is the former name of RollingUpdate."""

    max_surge: Share = 0
    """maxSurge is the number of pods, or the percentage of spec.replicas rounded up, that may exist
    in addition to spec.replicas during the update. More than spec.replicas counts as spec.replicas.
    Defaults to 0."""


class UpdateStrategy(
    KubernetesModel,
    rules=(
        Rule(
            "!has(self.rollingUpdate) || self.type == 'RollingUpdate'",
            "rollingUpdate may be set only if type is RollingUpdate",
            field_path=".rollingUpdate",
        ),
        Rule(
            "!has(self.recreate) || self.type == 'Recreate'",
            "recreate may be set only if type is Recreate",
            field_path=".recreate",
        ),
    ),
):
    """UpdateStrategy determines how pods of an older template are replaced."""

    type: UpdateType = UpdateType.ON_DELETE
    """type is OnDelete to leave running pods alone, or RollingUpdate to replace them step by step.
    Recreate is the former name of RollingUpdate and still works. Defaults to OnDelete."""

    rolling_update: RollingUpdate | None = None
    """rollingUpdate limits the replacement if type is RollingUpdate."""

    recreate: RecreateUpdate | None = None
    """recreate limits the replacement if type is Recreate. Use type RollingUpdate and rollingUpdate
    in new manifests."""

    @property
    def rolling(self) -> tuple[str, RollingUpdate] | None:
        """The name of the field with the limits of a step-by-step update, and the limits.

        None if running pods are left alone.
        """
        match self.type:
            case UpdateType.ROLLING_UPDATE:
                return "rollingUpdate", self.rolling_update or RollingUpdate()
            case UpdateType.RECREATE:
                return "recreate", self.recreate or RecreateUpdate()
            case UpdateType.ON_DELETE:
                return None
            case unknown:
                assert_never(unknown)


class PodBackoff(
    KubernetesModel,
    rules=(Rule("self.baseSeconds <= self.maxSeconds", "baseSeconds must not exceed maxSeconds"),),
):
    """PodBackoff defines the delay before a pod that failed soon after its start is replaced."""

    base_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    """baseSeconds is the delay before the second replacement in a row. The first replacement is
    immediate, and each further failure doubles the delay."""

    max_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    """maxSeconds is the longest delay. A pod that ran for at least this long before it ended is
    replaced immediately."""


class PodSetSpec(
    KubernetesModel,
    rules=(
        Rule(
            "!has(self.selector) || has(self.template)",
            "selector needs a template that has its labels",
            field_path=".selector",
        ),
        Rule(
            "!has(self.selector) || !has(self.template) || !has(self.selector.matchLabels) || "
            "self.selector.matchLabels.all(k, has(self.template.metadata) && "
            "has(self.template.metadata.labels) && k in self.template.metadata.labels && "
            "self.template.metadata.labels[k] == self.selector.matchLabels[k])",
            "template.metadata.labels must have every label of selector.matchLabels",
            field_path=".template",
        ),
        Rule(
            "!has(self.selector) || "
            "(has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || "
            "(has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",
            "selector must not be empty: it would match every pod of the namespace",
            field_path=".selector",
        ),
    ),
):
    """PodSetSpec is the desired state of a PodSet."""

    replicas: Annotated[int, Field(ge=0, le=10_000)] = 1
    """replicas is the desired number of pods."""

    selector: Annotated[LabelSelector | None, Immutable()] = None
    """selector selects the pods of the set: orphans that match are adopted, and pods that no longer
    match are released. Without a selector, the set manages the pods that it created. Immutable."""

    template: PodTemplate | None = None
    """template is the template of the pods. Defaults to a busybox that sleeps for an hour."""

    service_name: Annotated[DnsLabel | None, Immutable()] = None
    """serviceName is the name of a headless Service that gives each pod the DNS name
    <pod>.<serviceName>.<namespace>.svc. The Service has to be created separately. It overrides
    hostname and subdomain of the template. Immutable."""

    min_ready_seconds: Seconds = 0
    """minReadySeconds is how long a pod must have been ready to count as available."""

    progress_deadline_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 600
    """progressDeadlineSeconds is the time in seconds without progress after which Progressing is
    False and Stalled is True, including while the API server refuses pods. Unlike the field of a
    Deployment, it applies outside of updates as well. Pods are not touched by it. Defaults to
    600."""

    update_strategy: UpdateStrategy = UpdateStrategy()
    """updateStrategy defines how pods of an older template are replaced."""

    revision_history_limit: Annotated[int, Field(ge=0, le=100)] = 10
    """revisionHistoryLimit is the number of earlier templates to keep, each as a ControllerRevision
    in addition to the templates of running pods. Defaults to 10."""

    template_revision: DnsSubdomain | None = None
    """templateRevision is the name of a ControllerRevision of the set whose template is used in
    place of spec.template for as long as this field is set. Set it to roll back, and unset it to
    use spec.template again. Running pods are replaced according to updateStrategy."""

    pod_replacement_policy: PodReplacementPolicy = PodReplacementPolicy.TERMINATION_STARTED
    """podReplacementPolicy is TerminationStarted to replace a pod as soon as it is being deleted,
    or TerminationComplete to wait until it has terminated, so that there are never more pods than
    replicas and maxSurge allow."""

    pods_to_delete: Annotated[list[DnsSubdomain], ListSet(), Field(max_length=1000)] = []
    """podsToDelete names pods that are deleted first when the set shrinks."""

    backoff: PodBackoff = PodBackoff()
    """backoff is the delay before the replacement of a pod that failed shortly after its start."""

    failed_pods_history_limit: Annotated[int, Field(ge=0, le=100)] = 0
    """failedPodsHistoryLimit is the number of ended pods that are kept for inspection after they
    were replaced. Each of them keeps its slot."""

    paused: Annotated[
        bool, Waive("no-booleans", "Deployment has the same switch under the same name")
    ] = False
    """paused stops updates: a new template is not used, as in a paused Deployment. The set is still
    scaled, and pods that end are replaced from the template that the other pods have. The
    annotation slipway.dev/paused stops the operator from changing any pod."""


class PodSetStatus(ObjectStatus):
    """PodSetStatus is the observed state of a PodSet."""

    conditions: Conditions = []
    """conditions report the state of the set."""

    replicas: Count = 0
    """replicas is the number of pods that have not ended and are not being deleted."""

    ready_replicas: Count = 0
    """readyReplicas is the number of pods that are ready."""

    available_replicas: Count = 0
    """availableReplicas is the number of pods that have been ready for minReadySeconds."""

    updated_replicas: Count = 0
    """updatedReplicas is the number of pods that were created from the template of the update
    revision."""

    terminating_replicas: Count = 0
    """terminatingReplicas is the number of pods that are being deleted and still exist."""

    current_revision: DnsSubdomain | None = None
    """currentRevision is the name of the last ControllerRevision that all pods had while they were
    available. Pods that a partition protects are recreated from it."""

    update_revision: DnsSubdomain | None = None
    """updateRevision is the name of the ControllerRevision from which new pods are created."""

    selector: Selector = ""
    """selector is the label selector of the pods as text, for autoscalers."""

    pod_names: Annotated[list[DnsSubdomain], Field(max_length=POD_NAMES_LIMIT)] = []
    """podNames are the names of the pods counted in replicas, ordered by slot; the first 1,000."""


class PodSet(
    CustomResource,
    group="batch.tutorial.kubebuilder.io",
    version="v1",
    plural="podsets",
    categories=("slipway",),
    scale=Scale(
        spec_replicas=".spec.replicas",
        status_replicas=".status.replicas",
        label_selector=".status.selector",
    ),
    columns=(
        PrinterColumn("Desired", "integer", ".spec.replicas", "Desired number of pods."),
        PrinterColumn(
            "Current",
            "integer",
            ".status.replicas",
            "Number of pods that have not ended and are not being deleted.",
        ),
        PrinterColumn("Ready", "integer", ".status.readyReplicas", "Number of ready pods."),
        PrinterColumn(
            "Updated", "integer", ".status.updatedReplicas", "Pods of the newest template."
        ),
        PrinterColumn(
            "Available", "integer", ".status.availableReplicas", "Number of available pods."
        ),
        PrinterColumn(
            "Status",
            "string",
            '.status.conditions[?(@.type=="Ready")].reason',
            "Why the set is ready, or why not.",
        ),
        AGE,
        PrinterColumn("Revision", "string", ".status.updateRevision", "Revision of new pods.", 1),
        PrinterColumn("Selector", "string", ".status.selector", "Selector of the pods.", 1),
    ),
    rules=(
        Rule(
            "size(self.metadata.name) <= 63",
            "name must have at most 63 characters: it becomes the value of a label",
        ),
        Rule(
            "!has(self.spec.serviceName) || size(self.metadata.name) <= 52",
            "name must have at most 52 characters if spec.serviceName is set: names of pods "
            "become host names",
            field_path=".spec.serviceName",
        ),
    ),
    conditions=ConditionType,
    reasons=Reason,
):
    """PodSet runs a number of identical pods."""

    spec: PodSetSpec
    """spec is the desired state of the set."""
    status: PodSetStatus | None = None
    """status is the observed state of the set."""

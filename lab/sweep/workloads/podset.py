"""Workloads of the podset operator: scaling, updating, lost pods, deletion."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from lab.sweep.modes import Mode
from lab.sweep.recorder import NamespaceRecord, Version
from lab.sweep.triggers import Trigger
from lab.sweep.workload import Phase, State, User, Workload, change, is_empty, is_observed, remove
from libs.common.crd import build_crd
from libs.common.kinds import CONTROLLER_REVISION, POD, Manifest, is_deleting, uid_of
from libs.common.ownership import controller_uid
from operators.podset.api import PodSet
from operators.podset.controller import OPERATOR, PODSET

_SURGE: Final = 1


def build_spec(version: str, **spec: Any) -> Manifest:
    """Build the spec of a set whose pods have a version."""
    return {
        "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"version": version}},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [{"name": "main", "image": "busybox"}],
            },
        },
        **spec,
    }


def has_pods(count: int, version: str) -> Any:
    """Return a condition: so many ready pods of a version, and the status says so."""

    def check(record: NamespaceRecord) -> bool:
        pods = record.list(POD)
        return (
            len(pods) == count
            and all(pod["metadata"]["annotations"]["version"] == version for pod in pods)
            and not any(is_deleting(pod) for pod in pods)
            and is_counted(record, count)
        )

    return check


def is_counted(record: NamespaceRecord, count: int) -> bool:
    """Return whether the status reports the revision, so many ready pods, and no terminating one.

    The revision comes late if a foreign object had its name.
    """
    podset = record.get(PODSET, "web")
    if podset is None or not is_observed(podset):
        return False
    status = podset["status"]
    return (
        status.get("readyReplicas", 0) == count
        and not status.get("terminatingReplicas")
        and bool(status.get("updateRevision"))
    )


def check_bound(history: Sequence[Version]) -> list[str]:
    """Check that active pods never exceed the highest replicas so far and the surge."""
    limits: dict[str, int] = {}
    active: dict[str, set[str]] = {}
    found = []
    for version in history:
        manifest = version.manifest
        uid = manifest["metadata"]["uid"]
        if version.kind == PODSET:
            limits[uid] = max(limits.get(uid, 0), manifest["spec"]["replicas"] + _SURGE)
            continue
        owner = controller_uid(manifest)
        if not owner or version.kind != POD:
            continue
        pods = active.setdefault(owner, set())
        if version.action == "DELETED" or is_deleting(manifest):
            pods.discard(uid)
        else:
            pods.add(uid)
        if len(pods) > limits.get(owner, len(pods)):
            found.append(f"{len(pods)} active pods, at most {limits[owner]} may be")
    return found


def fold_uids(text: str) -> str:
    """Replace the hash of the UID in the name of a revision."""
    return re.sub(r"\b(web-[0-9a-f]{10})-[0-9a-f]{5}\b", r"\1-uid", text)


def fold_names(state: State) -> State:
    """Number pods by what they are: which slots are taken, and by which pods, is no matter.

    A partition is a number of pods that keep their template, and not a choice of slots.
    """
    folded: State = {name: value for name, value in state.items() if not name.startswith("pods ")}
    pods = [_drop_name(value) for name, value in state.items() if name.startswith("pods ")]
    for number, pod in enumerate(sorted(pods, key=partial(json.dumps, sort_keys=True))):
        folded[f"pods {number}"] = pod
    for value in folded.values():
        (value.get("status") or {}).pop("podNames", None)
    return folded


def _drop_name(pod: Manifest) -> Manifest:
    """Leave out what a pod has from its slot."""
    metadata = {key: value for key, value in pod["metadata"].items() if key != "name"}
    labels = metadata.get("labels") or {}
    metadata["labels"] = {k: v for k, v in labels.items() if not k.endswith("/slot")}
    spec = {key: value for key, value in pod["spec"].items() if key != "hostname"}
    return {**pod, "metadata": metadata, "spec": spec}


async def _create(user: User, **spec: Any) -> None:
    await user.create(PODSET, "web", build_spec("1", replicas=2, **spec))


async def _create_strict(user: User) -> None:
    await _create(
        user,
        podReplacementPolicy="TerminationComplete",
        updateStrategy={
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
        },
    )


async def _create_rolling(user: User) -> None:
    rolling = {"maxUnavailable": 0, "maxSurge": _SURGE}
    await _create(user, updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling})


_grow = change(PODSET, "web", replicas=3)


async def _change(user: User) -> None:
    template = {"metadata": {"annotations": {"version": "2"}}}
    await user.patch(PODSET, "web", {"spec": {"template": template}})


async def _create_history(user: User) -> None:
    rolling = {"maxUnavailable": 1, "maxSurge": 0}
    await _create(
        user,
        revisionHistoryLimit=0,
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling},
    )


async def _hold(user: User) -> None:
    """Try a third template on one pod of two."""
    template = {"metadata": {"annotations": {"version": "3"}}}
    rolling = {"maxUnavailable": 1, "maxSurge": 0, "partition": 1}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    await user.patch(PODSET, "web", {"spec": {"template": template, "updateStrategy": strategy}})


def _is_held(record: NamespaceRecord) -> bool:
    pods = [pod for pod in record.list(POD) if not is_deleting(pod)]
    versions = sorted(pod["metadata"]["annotations"]["version"] for pod in pods)
    return (
        versions == ["2", "3"]
        and is_counted(record, 2)
        and len(record.list(CONTROLLER_REVISION)) == 2
    )


async def _roll_back(user: User) -> None:
    """Go back to the template that the pod under the partition still has."""
    (podset,) = await user.list(PODSET)
    name = podset["status"]["currentRevision"]
    rolling = {"maxUnavailable": 1, "maxSurge": 0, "partition": 0}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    await user.patch(
        PODSET, "web", {"spec": {"templateRevision": name, "updateStrategy": strategy}}
    )


def _is_rolled_back(record: NamespaceRecord) -> bool:
    return has_pods(2, "2")(record) and len(record.list(CONTROLLER_REVISION)) == 1


_delete = remove(PODSET, "web")


def fold_adopted(state: State) -> State:
    """Keep of pods only whose they are: adopted ones and made ones are equally right."""
    folded: State = {name: value for name, value in state.items() if not name.startswith("pods ")}
    pods = [value for name, value in state.items() if name.startswith("pods ")]
    owners = [len(pod["metadata"].get("ownerReferences") or ()) for pod in pods]
    folded["pods"] = {"owned": sum(owners), "free": owners.count(0)}
    for value in folded.values():
        # Adopted pods count as outdated, so they never make a new revision the current one.
        for name in ("podNames", "updatedReplicas", "currentRevision"):
            (value.get("status") or {}).pop(name, None)
    return folded


def exempt_adoption(mode: Mode, trigger: Trigger) -> bool:
    """Spare what has another right end.

    The deletion of the pod that is let go: then there is none to be left in peace. A watch that
    falls silent before the orphans come: the set makes pods of its own, and adopts too late.
    """
    moment = (trigger.phase, trigger.action, trigger.target)
    if mode is Mode.SILENT:
        return moment == ("orphans", "ADDED", "pods")
    return (
        mode is Mode.GONE and moment == ("release", "MODIFIED", "pods") and trigger.occurrence == 1
    )


def exempt_rollback(mode: Mode, trigger: Trigger) -> bool:
    """Spare the deletion of the revision that the user goes back to.

    The spec then names a revision that does not exist, which the set reports in Ready.
    """
    moment = (trigger.phase, trigger.action, trigger.target)
    return mode is Mode.GONE and moment == ("back", "MODIFIED", "controllerrevisions.apps")


def has_owned(count: int, *, free: int = 0) -> Any:
    """Return a condition: the set has so many ready pods, and so many belong to nobody."""

    def check(record: NamespaceRecord) -> bool:
        podset, pods = record.get(PODSET, "web"), record.list(POD)
        owned = [pod for pod in pods if controller_uid(pod)]
        return (
            podset is not None
            and is_counted(record, count)
            and all(controller_uid(pod) == uid_of(podset) for pod in owned)
            and len(owned) == count
            and len(pods) == count + free
            and not any(is_deleting(pod) for pod in pods)
        )

    return check


async def _leave_orphans(user: User) -> None:
    for name in ("old-0", "old-1"):
        template = build_spec("1")["template"]
        metadata = {**template["metadata"], "name": name}
        await user.add(POD, {"metadata": metadata, "spec": template["spec"]})


async def _adopt(user: User) -> None:
    await user.create(
        PODSET, "web", build_spec("1", replicas=2, selector={"matchLabels": {"app": "web"}})
    )


async def _relabel(user: User) -> None:
    pods = await user.list(POD)
    names = [pod["metadata"]["name"] for pod in pods if controller_uid(pod)]
    await user.patch(POD, min(names), {"metadata": {"labels": {"app": "debug"}}})


async def _replace(user: User) -> None:
    """Delete the set and make another one of its name before its pods are gone."""
    await user.delete(PODSET, "web")
    await user.create(PODSET, "web", build_spec("2", replicas=2))


def _has_orphans(record: NamespaceRecord) -> bool:
    return len(record.list(POD)) == 2


def _only_free(record: NamespaceRecord) -> bool:
    pods = record.list(POD)
    return len(record.live) == len(pods) == 1 and not controller_uid(pods[0])


_STRICT: Final = (
    Phase("create", _create_strict, has_pods(2, "1")),
    Phase("change", _change, has_pods(2, "2")),
    Phase("lose", remove(POD, "web-pod-0"), has_pods(2, "2")),
    Phase("probe", _grow, has_pods(3, "2"), quiet=True),
    Phase("delete", _delete, is_empty),
)
_ADOPTING: Final = (
    Phase("orphans", _leave_orphans, _has_orphans),
    Phase("adopt", _adopt, has_owned(2)),
    Phase("release", _relabel, has_owned(2, free=1)),
    Phase("probe", _grow, has_owned(3, free=1), quiet=True),
    Phase("delete", _delete, _only_free),
)
_RECREATED: Final = (
    Phase("create", _create, has_pods(2, "1")),
    Phase("replace", _replace, has_pods(2, "2")),
    Phase("probe", _grow, has_pods(3, "2"), quiet=True),
    Phase("delete", _delete, is_empty),
)
_HISTORY: Final = (
    Phase("create", _create_history, has_pods(2, "1")),
    Phase("change", _change, has_pods(2, "2")),
    Phase("hold", _hold, _is_held),
    Phase("back", _roll_back, _is_rolled_back),
    Phase("delete", _delete, is_empty),
)
_ROLLING: Final = (
    Phase("create", _create_rolling, has_pods(2, "1")),
    Phase("grow", _grow, has_pods(3, "1")),
    Phase("change", _change, has_pods(3, "2")),
    Phase("shrink", change(PODSET, "web", replicas=1), has_pods(1, "2")),
    Phase("probe", _grow, has_pods(3, "2"), quiet=True),
    Phase("delete", _delete, is_empty),
)


def _build(name: str, phases: tuple[Phase, ...], **options: Any) -> Workload:
    return Workload(
        id=name,
        operator=OPERATOR,
        rules=OPERATOR.rules(),
        crds=(build_crd(PodSet),),
        primary=PODSET,
        children=(POD, CONTROLLER_REVISION),
        rewrite=fold_uids,
        phases=phases,
        invariants=(check_bound,),
        # The deletion of an object that has the name of a revision is no event of the set.
        scaled={"operators.podset.controller": {"_NAME_TAKEN_SECONDS": 0.5}},
        **options,
    )


WORKLOADS: Final = (
    _build("strict", _STRICT),
    _build("history", _HISTORY, fold=fold_names, renames=True, spares=exempt_rollback),
    _build("rolling", _ROLLING, fold=fold_names, renames=True),
    _build("adopting", _ADOPTING, fold=fold_adopted, renames=True, spares=exempt_adoption),
    _build("recreated", _RECREATED, fold=fold_names, renames=True),
)

"""Views of pods for the plan: their containers and the injectors that were added to them. Pure.

The pods hold the whole history: each injector has its request in its environment and its report in
its termination message. Therefore a restart of the operator loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, Final

from libs.common.conditions import parse_time
from libs.common.kinds import Key, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import condition_at, map_at, maps_at, text_at, text_map_at
from operators.jmxexporter.injector.messages import REQUEST_VARIABLE, Action, Report, Request
from operators.jmxexporter.memory import pick_limit, read_limit
from operators.jmxexporter.naming import (
    ENDPOINT,
    MARK,
    MIRROR,
    OPT_OUT,
    OWNER,
    PATH,
    PORT,
    PREFIX,
    SCHEME,
    SCRAPE,
    STARTED,
)
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.started import Started

_TMP: Final = "/tmp"  # noqa: S108 - where HotSpot listens; it is only compared.
_IDENTITY: Final = ("runAsUser", "runAsGroup", "runAsNonRoot")
_STATUS: Final = ("name", "containerID", "state", "lastState", "user", "restartCount")
_GRACE: Final = timedelta(seconds=10)
_TIMEOUTS: Final = 3
"""How many of its time limits an injector may need for a JVM on a busy node."""
_ANNOTATIONS: Final = (
    *(SCRAPE, PORT, PATH, SCHEME, OWNER, MARK, STARTED, OPT_OUT, ENDPOINT),
    MIRROR,
)


@dataclass(frozen=True, slots=True)
class InjectorRun:
    """One injector.

    Attributes:
        started: When it started; None before.
        finished: When it ended; None before.
        waits_for: Why it has not started, as the kubelet reports it.
        report: Its report; None before its end, and if the report cannot be parsed.
    """

    name: str
    container: str
    request: Request
    uid: int
    gid: int
    started: datetime | None = None
    finished: datetime | None = None
    waits_for: str = ""
    report: Report | None = None

    def is_pending(self, now: datetime) -> bool:
        """Return whether it is running or may still start."""
        return self.finished is None and now.timestamp() <= self.last_second

    @property
    def last_second(self) -> float:
        """Time after which it does nothing more, even if nobody reports its end.

        The kubelet of a lost node reports nothing, and the kernel can hold an injector
        indefinitely.
        """
        request = self.request
        most = _TIMEOUTS * request.timeout_seconds * request.max_jvms
        return request.not_after + (most if self.started is not None else 0)

    def has_lost_jvm(self) -> bool:
        """Return whether its report says that a JVM ended."""
        jvms = self.report.jvms if self.report else ()
        return any(jvm.reason == Reason.JVM_TERMINATED for jvm in jvms)


@dataclass(frozen=True, slots=True)
class Container:
    """One container.

    Attributes:
        container_id: Its id at the runtime, without the scheme; empty while it does not run.
        uid: User that its processes run as, as far as it is known.
        gid: Group that its processes run as, as far as it is known.
        capabilities: Capabilities that its specification asks for.
        non_root: Whether its specification rules out the user root.
        last_id: Id of the previous run of the container, which has ended.
        tmp_sharer: Who else can mount the directory that it has at /tmp; empty for nobody.
        memory_limit: Its memory limit in bytes, or the memory limit of its pod if that is lower; 0
            for none.
        restarts: How often it has restarted.
    """

    name: str
    container_id: str = ""
    uid: int | None = None
    gid: int | None = None
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    non_root: bool = False
    last_id: str = ""
    last_end: datetime | None = None
    tmp_sharer: str = ""
    memory_limit: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod.

    Attributes:
        resource_version: Resource version of the object that was parsed.
        annotations: Annotations that concern the operator; None if the pod has none at all.
        ready_since: Since when it is ready; None when it is not.
        active: Whether it runs, on Linux, and is not being deleted.
        coming: Whether it is expected to run and does not run yet.
        shared_processes: Whether its containers see each other's processes.
        host_network: Whether it uses the network of its node.
        runs: Injectors of all exporters, in their order.
        ephemeral: Number of its ephemeral containers, including those of other tools.
        started: Agent that its JVMs were started with; None if it was created without one.
        static: Whether a kubelet runs it from a file.
    """

    key: Key
    uid: str
    resource_version: str
    annotations: Mapping[str, str] | None
    ip: str
    ready_since: datetime | None
    active: bool
    coming: bool
    shared_processes: bool
    host_network: bool
    containers: Sequence[Container]
    runs: Sequence[InjectorRun]
    ephemeral: int
    started: Started | None = None
    static: bool = False

    @classmethod
    def parse(cls, manifest: Mapping[str, Any]) -> Pod:
        """Parse a pod, full or reduced by `shrink_pod`."""
        spec, status = map_at(manifest, "spec"), map_at(manifest, "status")
        ready = condition_at(manifest, "Ready")
        annotations = map_at(manifest, "metadata").get("annotations")
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            resource_version=text_at(manifest, "metadata", "resourceVersion"),
            annotations=(
                None if annotations is None else text_map_at(manifest, "metadata", "annotations")
            ),
            ip=text_at(status, "podIP"),
            ready_since=(
                _time(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None
            ),
            active=text_at(status, "phase") == "Running"
            and not is_deleting(manifest)
            and text_at(spec, "os", "name") != "windows",
            coming=text_at(status, "phase") in ("", "Pending") and not is_deleting(manifest),
            shared_processes=spec.get("shareProcessNamespace") is True
            or spec.get("hostPID") is True,
            host_network=spec.get("hostNetwork") is True,
            containers=_parse_containers(spec, status),
            runs=_parse_runs(spec, status),
            ephemeral=len(maps_at(spec, "ephemeralContainers")),
            started=Started.parse(text_at(manifest, "metadata", "annotations", STARTED)),
            static=bool(text_at(manifest, "metadata", "annotations", MIRROR)),
        )

    def is_busy(self, now: datetime) -> bool:
        """Return whether an injector is running or may still start."""
        return any(run.is_pending(now) for run in self.runs)

    def runs_of(self, exporter: str, container: Container | None = None) -> list[InjectorRun]:
        """Return the injectors of an exporter, of all containers or of one as it runs now."""
        return [
            run
            for run in self.runs
            if run.request.id == exporter
            and (
                container is None
                or (
                    run.container == container.name
                    and run.request.container_id == container.container_id
                )
            )
        ]

    def belongs_to(self, exporter: str) -> bool:
        """Return whether an exporter has annotated the pod."""
        held = self.annotations or {}
        return held.get(OWNER) == exporter or held.get(ENDPOINT, "").startswith(f"{exporter}:")

    def begins_with(self, exporter: str, container: Container) -> bool:
        """Return whether the JVMs of a container were started with an exporter of this name."""
        held = self.started
        return held is not None and held.exporter == exporter and container.name in held.containers

    def has_lost(self, run: InjectorRun) -> bool:
        """Return whether, according to the kubelet, a container ended during an injection.

        A JVM that is the first process also ends its container and the injector, which
        then has no time for a report. On a busy node the runtime notes the start of an injector
        some time after the start, and the end of a container some time after the end.
        """
        if run.report is not None or run.finished is None:
            return False
        began = run.started or run.finished
        return any(
            container.name == run.container
            and container.last_id == run.request.container_id
            and container.last_end is not None
            and began - _GRACE <= container.last_end <= run.finished + _GRACE
            for container in self.containers
        )

    def outlived(self, run: InjectorRun) -> int | None:
        """Return how often a container has ended since it ended during an injection.

        None if it did not end during that injection, as far as is known: the kubelet reports the
        times of the last end only.
        """
        held = next((each for each in self.containers if each.name == run.container), None)
        target = run.request.container_id
        if held is None or held.container_id == target or run.request.action is not Action.ENSURE:
            return None
        if held.last_id == target:
            lost = self.has_lost(run) or run.has_lost_jvm()
            return 0 if lost else None
        # After another injector in the same container, the first one had not ended it.
        last = [each for each in self.runs if each.request.container_id == target][-1]
        silent = run.finished is not None and run.report is None
        return held.restarts - run.request.restarts - 1 if last is run and silent else None


def is_opted_out(pod: Mapping[str, Any]) -> bool:
    """Return whether the annotations of a pod opt it out."""
    return text_at(pod, "metadata", "annotations", OPT_OUT) == "true"


def shrink_pod(pod: Manifest) -> Manifest:
    """Reduce a pod to the fields that the plan reads: about 600 bytes of 10,000."""
    metadata, spec, status = pod["metadata"], map_at(pod, "spec"), map_at(pod, "status")
    names = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "labels")
    statuses = _by_name(status)
    shown = {text_at(mount, "name") for each in _lasting(spec) if (mount := _tmp_mount(each))}
    kept: Manifest = {name: metadata[name] for name in names if name in metadata}
    if "annotations" in metadata:
        annotations = metadata["annotations"]
        kept["annotations"] = {n: annotations[n] for n in _ANNOTATIONS if n in annotations}

    def shrink(each: Mapping[str, Any]) -> Manifest:
        return {
            **_pick(each, "name", "securityContext", "restartPolicy"),
            **_pick_mounts(each, shown),
            **pick_limit(each, statuses.get(text_at(each, "name"))),
        }

    return {
        "apiVersion": pod.get("apiVersion", "v1"),
        "kind": pod.get("kind", "Pod"),
        "metadata": kept,
        "spec": {
            **_pick(
                spec, "shareProcessNamespace", "hostPID", "hostNetwork", "os", "securityContext"
            ),
            **pick_limit(spec),
            "volumes": [
                {"name": name, "hostPath": {}} for name in sorted(shown & _node_volumes(spec))
            ],
            "containers": list(map(shrink, maps_at(spec, "containers"))),
            "initContainers": list(map(shrink, filter(_is_sidecar, _init_containers(spec)))),
            "ephemeralContainers": [
                {
                    **_pick(each, "name", "targetContainerName", "securityContext"),
                    "env": [
                        variable
                        for variable in maps_at(each, "env")
                        if variable.get("name") == REQUEST_VARIABLE
                    ],
                }
                for each in maps_at(spec, "ephemeralContainers")
            ],
        },
        "status": {
            **_pick(status, "phase", "podIP"),
            "conditions": [
                each for each in maps_at(status, "conditions") if each.get("type") == "Ready"
            ],
            "containerStatuses": [
                _pick(each, *_STATUS) for each in maps_at(status, "containerStatuses")
            ],
            "initContainerStatuses": [
                _pick(each, *_STATUS)
                for each in maps_at(status, "initContainerStatuses")
                if "running" in map_at(each, "state")
            ],
            "ephemeralContainerStatuses": [
                _pick(each, "name", "state")
                for each in maps_at(status, "ephemeralContainerStatuses")
            ],
        },
    }


def _pick(source: Mapping[str, Any], *names: str) -> Manifest:
    return {name: source[name] for name in names if name in source}


def _pick_mounts(container: Mapping[str, Any], volumes: set[str]) -> Manifest:
    mounts = [
        _pick(each, "name", "mountPath", "subPath", "subPathExpr")
        for each in maps_at(container, "volumeMounts")
        if text_at(each, "name") in volumes
    ]
    return {"volumeMounts": mounts} if mounts else {}


def _tmp_mount(container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    mounts = maps_at(container, "volumeMounts")
    return next((each for each in mounts if text_at(each, "mountPath").rstrip("/") == _TMP), None)


def _find_tmp_sharer(
    container: Mapping[str, Any], others: Iterable[Mapping[str, Any]], volumes: AbstractSet[str]
) -> str:
    """Return who else can mount the volume that a container has at /tmp.

    A read-only mount counts as well: it does not prevent connections to a socket.

    Args:
        container: The container.
        others: The containers of the pod.
        volumes: Names of the volumes that are directories of the node.
    """
    held = _tmp_mount(container)
    if held is None:
        return ""
    if text_at(held, "name") in volumes:
        return "another pod of the node"
    return next(
        (
            f"container {text_at(other, 'name')}"
            for other in others
            if text_at(other, "name") != text_at(container, "name")
            and any(_overlap(held, mount) for mount in maps_at(other, "volumeMounts"))
        ),
        "",
    )


def _overlap(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Return whether two mounts show the same directory of a volume, or one below the other."""
    if text_at(left, "name") != text_at(right, "name"):
        return False
    first, second = (
        PurePosixPath(text_at(each, "subPath") or text_at(each, "subPathExpr"))
        for each in (left, right)
    )
    return first.is_relative_to(second) or second.is_relative_to(first)


def _parse_containers(spec: Mapping[str, Any], status: Mapping[str, Any]) -> list[Container]:
    statuses, listed = _by_name(status), _lasting(spec)
    return [
        replace(
            _parse_container(each, spec, statuses.get(text_at(each, "name"), {})),
            tmp_sharer=_find_tmp_sharer(each, listed, _node_volumes(spec)),
        )
        for each in listed
    ]


def _node_volumes(spec: Mapping[str, Any]) -> set[str]:
    return {text_at(each, "name") for each in maps_at(spec, "volumes") if "hostPath" in each}


def _by_name(status: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    reported = (*maps_at(status, "containerStatuses"), *maps_at(status, "initContainerStatuses"))
    return {text_at(each, "name"): each for each in reported}


def _lasting(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the containers that run as long as the pod does."""
    return [*maps_at(spec, "containers"), *filter(_is_sidecar, _init_containers(spec))]


def _init_containers(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return maps_at(spec, "initContainers")


def _is_sidecar(container: Mapping[str, Any]) -> bool:
    """Return whether an init container runs as long as the pod does."""
    return container.get("restartPolicy") == "Always"


def _parse_container(
    spec: Mapping[str, Any], pod_spec: Mapping[str, Any], status: Mapping[str, Any]
) -> Container:
    context, pod_context = map_at(spec, "securityContext"), map_at(pod_spec, "securityContext")
    user = map_at(status, "user", "linux")
    asked = {name: context.get(name, pod_context.get(name)) for name in _IDENTITY}
    last = map_at(status, "lastState", "terminated")
    running = "running" in map_at(status, "state")
    return Container(
        name=text_at(spec, "name"),
        container_id=_strip(text_at(status, "containerID")) if running else "",
        uid=_integer(user.get("uid"), asked["runAsUser"]),
        gid=_integer(user.get("gid"), asked["runAsGroup"]),
        capabilities=map_at(context, "capabilities"),
        non_root=asked["runAsNonRoot"] is True or bool(_integer(asked["runAsUser"])),
        last_id=_strip(text_at(last, "containerID")),
        last_end=_time(last.get("finishedAt")),
        memory_limit=read_limit(pod_spec, pick_limit(spec, status)),
        restarts=_integer(status.get("restartCount")) or 0,
    )


def _parse_runs(spec: Mapping[str, Any], status: Mapping[str, Any]) -> list[InjectorRun]:
    statuses = {
        text_at(each, "name"): each for each in maps_at(status, "ephemeralContainerStatuses")
    }
    runs = (
        _parse_run(each, map_at(statuses.get(text_at(each, "name"), {}), "state"))
        for each in maps_at(spec, "ephemeralContainers")
        if text_at(each, "name").startswith(PREFIX)
    )
    return [run for run in runs if run is not None]


def _parse_run(spec: Mapping[str, Any], state: Mapping[str, Any]) -> InjectorRun | None:
    variables = {text_at(each, "name"): text_at(each, "value") for each in maps_at(spec, "env")}
    try:
        request = Request.parse(variables.get(REQUEST_VARIABLE, ""))
    except (ValueError, KeyError, TypeError):
        return None
    context = map_at(spec, "securityContext")
    ended = map_at(state, "terminated")
    began = ended.get("startedAt") or map_at(state, "running").get("startedAt")
    waiting = map_at(state, "waiting")
    return InjectorRun(
        name=text_at(spec, "name"),
        container=text_at(spec, "targetContainerName"),
        request=request,
        uid=_integer(context.get("runAsUser")) or 0,
        gid=_integer(context.get("runAsGroup")) or 0,
        started=_time(began),
        finished=_time(ended.get("finishedAt")) if ended else None,
        waits_for=": ".join(
            text for text in (text_at(waiting, "reason"), text_at(waiting, "message")[:150]) if text
        ),
        # Only trust a report of an injector that succeeded: a process of the pod can write the
        # termination message, but then it has to kill the injector.
        report=_parse_report(text_at(ended, "message")) if ended.get("exitCode") == 0 else None,
    )


def _parse_report(text: str) -> Report | None:
    try:
        return Report.parse(text)
    except (ValueError, KeyError, TypeError):
        return None


def _strip(container_id: str) -> str:
    return container_id.rpartition("//")[2]


def _integer(*values: object) -> int | None:
    return next((value for value in values if isinstance(value, int)), None)


def _time(text: object) -> datetime | None:
    try:
        return parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None

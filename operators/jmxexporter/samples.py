"""Objects for the tests of the operator, and a fake kubelet that runs injectors immediately."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from libs.common.kinds import CONFIG_MAP, POD, Key, Manifest, build_object, key_of
from libs.common.testing.fakeapi import FakeApi
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.injector.messages import Action, JvmReport, Report, Request, State
from operators.jmxexporter.pods import InjectorRun
from operators.jmxexporter.pods import Pod as PodView

CONFIG: Final = "rules:\n- pattern: .*\n"
"""A valid configuration."""
CONFIG_HASH: Final = hashlib.sha256(CONFIG.encode()).hexdigest()
"""Hash of `CONFIG`."""
SHOP: Final = Key("default", "shop-0")
"""Key of the pod that `build_pod` builds."""
LABELS: Final = {"app": "shop"}
"""Labels of the pods."""
STARTED: Final = "2026-01-01T00:10:00Z"
FINISHED: Final = "2026-01-01T00:10:02Z"

type Answer = Callable[[Request, InjectorRun], Report | None]
"""Returns the report of an injector; None if it ends without a report."""


def build_exporter(name: str = "jmx", /, **spec: Any) -> Manifest:
    """Build an exporter that does not wait before it changes pods."""
    return build_object(
        PROMETHEUS_JMX_EXPORTER,
        name,
        "default",
        spec={
            "labelSelector": LABELS,
            "config": {"configMapName": "jmx-config", "configMapKey": "config.yaml"},
            "port": 9400,
            "minReadySeconds": 0,
            **spec,
        },
    )


def build_config_map(text: str = CONFIG) -> Manifest:
    """Build the ConfigMap of the exporter."""
    return build_object(CONFIG_MAP, "jmx-config", "default", data={"config.yaml": text})


def build_pod(
    name: str = SHOP.name,
    *containers: str,
    labels: Mapping[str, str] = LABELS,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """Build a pod with one or more containers that has been running and ready for a long time."""
    names = containers or ("app",)
    metadata: Manifest = {"name": name, "namespace": "default", "labels": dict(labels)}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "v1",
        "kind": POD.kind,
        "metadata": metadata,
        "spec": {
            "securityContext": {"runAsUser": 1234, "runAsGroup": 5678},
            "containers": [{"name": each, "image": "shop"} for each in names],
            **spec,
        },
        "status": build_pod_status(name, *names),
    }


def build_pod_status(name: str, *containers: str, restart: int = 0) -> Manifest:
    """Build the status of a pod whose containers run, after some restarts."""
    statuses = [
        {
            "name": each,
            "containerID": f"containerd://{name}-{each}-{restart}",
            "image": "shop",
            "imageID": "shop",
            "ready": True,
            "restartCount": restart,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
        for each in containers
    ]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "conditions": [ready],
        "containerStatuses": statuses,
    }


def answer_well(request: Request, run: InjectorRun) -> Report:
    """Return the report of an injector that succeeded."""
    state = {
        Action.ENSURE: State.SERVING,
        Action.CHECK: State.WOULD_INJECT,
        Action.STOP: State.STOPPED,
    }[request.action]
    return Report((build_report(request, run, state),))


def build_report(request: Request, run: InjectorRun, state: State, reason: str = "") -> JvmReport:
    """Build the report of an injector on the JVM of a container."""
    ended = state is State.STOPPED or bool(reason)
    return JvmReport(
        pid=1,
        start=100,
        main="Shop",
        state=state,
        reason=reason,
        message=f"it is {reason}" if reason else "",
        port=0 if ended else request.port,
        config_hash="" if ended else request.config_hash,
        version="1.6.0",
        changed=True,
        uid=run.uid,
        gid=run.gid,
    )


def run_injectors(api: FakeApi, answer: Answer = answer_well) -> None:
    """Run every injector that has not run yet, and write its status."""
    for manifest in api.objects(POD):
        runs = [run for run in PodView.parse(manifest).runs if run.finished is None]
        if not runs:
            continue
        held = (manifest.get("status") or {}).get("ephemeralContainerStatuses") or []
        statuses = [each for each in held if "terminated" in each["state"]]
        statuses += [build_run_status(run, answer(run.request, run)) for run in runs]
        api.patch_status(POD, key_of(manifest), {"ephemeralContainerStatuses": statuses})


def build_run_status(run: InjectorRun, report: Report | None) -> Manifest:
    """Build the status of an injector that has ended."""
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": STARTED, "finishedAt": FINISHED}
    if report is not None:
        ended["message"] = report.render()
    return {
        "name": run.name,
        "image": "injector",
        "imageID": "injector",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": ended},
    }

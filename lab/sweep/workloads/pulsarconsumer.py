"""Workloads of the pulsarconsumer operator: consumers with their broker, and who scales them.

The broker is the admin API that the operator's own tests play, in the shapes that a real one was
seen to answer; each trial has one of its own, behind the same proxy as the API server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lab.sweep.components import Component
from lab.sweep.external_system import ExternalSystem, Reply, Request
from lab.sweep.faults import is_foreign
from lab.sweep.recorder import NamespaceRecord, Version
from lab.sweep.workload import (
    Phase,
    User,
    Workload,
    build_open_crd,
    change,
    is_empty,
    is_observed,
    remove,
)
from libs.common.client import Client
from libs.common.crd import build_crd
from libs.common.kinds import (
    DEPLOYMENT,
    POD_DISRUPTION_BUDGET,
    Kind,
    Manifest,
    is_deleting,
    key_of,
    uid_of,
)
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer
from operators.pulsarconsumer.controller import OPERATOR
from operators.pulsarconsumer.recorded_broker import RecordedBroker, RecordedTopic
from operators.pulsarconsumer.resources.policies import POD_MONITOR
from operators.pulsarconsumer.resources.scalers import (
    HORIZONTAL_POD_AUTOSCALER,
    SCALED_OBJECT,
    TRIGGER_AUTHENTICATION,
)
from operators.pulsarconsumer.samples import build_rollout

_PREFIX: Final = "/admin/v2/persistent/public/default/"
_FOREGROUND: Final = "foregroundDeletion"
_BACKLOG: Final = 150
_KEPT: Final = 100
"""Entries that wait after the broker moved the subscription to the first message."""
_SIDES: Final = (
    POD_DISRUPTION_BUDGET,
    HORIZONTAL_POD_AUTOSCALER,
    POD_MONITOR,
    SCALED_OBJECT,
    TRIGGER_AUTHENTICATION,
)


class FakeBroker:
    """A fake admin API of a broker with one topic.

    Args:
        trial: Name of the trial; each has a broker of its own.
        client: Not used: a broker knows nothing of Kubernetes.
    """

    def __init__(self, trial: str, client: Client) -> None:
        """Begin with a topic in which entries wait for a subscription of others."""
        del trial, client
        self._broker = RecordedBroker()
        self._broker.creates_topics = False
        self._broker.topics = {"my-topic": RecordedTopic(subscriptions={"others": _BACKLOG})}

    async def answer(self, request: Request) -> Reply:
        """Answer a request to anyone who has a token."""
        if not request.headers.get("Authorization", "").startswith("Bearer "):
            return Reply(401, b'{"reason": "Authentication required"}')
        path = request.path.removeprefix(_PREFIX)
        status, body = self._broker.answer(request.method, path)
        return Reply(status, b"" if body is None else json.dumps(body).encode())

    def show(self) -> Mapping[str, Manifest]:
        """Return the subscriptions of each topic."""
        return {name: dict(topic.subscriptions) for name, topic in self._broker.topics.items()}


def check_deployments(history: Sequence[Version]) -> list[str]:
    """Check that there are never more consumers than any spec or autoscaling ever asked for."""
    limit = 0
    found = []
    for version in history:
        spec = version.manifest.get("spec") or {}
        if version.kind == PULSAR_CONSUMER:
            scaling = spec.get("autoscaling") or {}
            limit = max(limit, spec.get("replicas") or 0, scaling.get("maxReplicas") or 0)
        elif version.kind == DEPLOYMENT and not is_foreign(version) and spec["replicas"] > limit:
            found.append(f"{version.title} has {spec['replicas']} replicas, at most {limit} may be")
    return found


def _spec(user: User, **spec: Any) -> Manifest:
    reference = {"name": "pulsar-login", "key": "token"}
    return {
        "serverAddress": "pulsar://pulsar:6650",
        "adminAddress": user.outside["pulsar"],
        "topic": "my-topic",
        "subscriptionName": "billing",
        "replicas": 1,
        "authentication": {"type": "Token", "token": {"secretKeyRef": reference}},
        **spec,
    }


async def _create(user: User) -> None:
    await user.create_secret("pulsar-login", token=user.canary)
    spec = _spec(
        user,
        subscription={"create": "Operator", "deletionPolicy": "Delete"},
        retry={"strategy": "RetryTopic"},
        deadLetter={},
        podDisruptionBudget={"minAvailable": 1},
        metrics={"podMonitor": {}},
    )
    await user.create(PULSAR_CONSUMER, "orders", spec)


async def _change(user: User) -> None:
    spec = {
        "replicas": 3,
        "podDisruptionBudget": {"minAvailable": 2},
        "metrics": {"podMonitor": {"intervalSeconds": 10}},
    }
    await user.patch(PULSAR_CONSUMER, "orders", {"spec": spec})


async def _seek(user: User) -> None:
    seek = {"id": "again", "position": "Earliest"}
    spec = {
        "subscription": {"seek": seek},
        "podDisruptionBudget": None,
        "metrics": {"podMonitor": None},
    }
    await user.patch(PULSAR_CONSUMER, "orders", {"spec": spec})


async def _share(user: User) -> None:
    """Make consumers share their attempts; this abandons the subscription on the retry topic."""
    await user.patch(PULSAR_CONSUMER, "orders", {"spec": {"retry": None}})


_probe = change(PULSAR_CONSUMER, "orders", replicas=2, autoscaling=None)
_delete = remove(PULSAR_CONSUMER, "orders")


async def _follow(user: User) -> None:
    await user.create_secret("pulsar-login", token=user.canary)
    scaling = {"maxReplicas": 5, "pollSeconds": 1, "targets": {"backlogPerReplica": 50}}
    spec = _spec(user, subscriptionName="others", autoscaling=scaling)
    await user.create(PULSAR_CONSUMER, "orders", spec)


async def _by_cpu(user: User) -> None:
    scaling = {"engine": "HPA", "minReplicas": 1}
    await user.patch(PULSAR_CONSUMER, "orders", {"spec": {"autoscaling": scaling}})


async def _tune(user: User) -> None:
    """Change the configuration of every engine."""
    reference = {"name": "other-login", "key": "token"}
    await user.create_secret("other-login", token=user.canary)
    spec = {
        "autoscaling": {"maxReplicas": 7},
        "authentication": {"token": {"secretKeyRef": reference}},
    }
    await user.patch(PULSAR_CONSUMER, "orders", {"spec": spec})


async def _tune_cpu(user: User) -> None:
    scaling = {"targets": {"cpuUtilizationPercent": 60}}
    await user.patch(PULSAR_CONSUMER, "orders", {"spec": {"autoscaling": scaling}})


def runs(replicas: int, *sides: Kind, waiting: int) -> Any:
    """Return a condition: this number of consumers is ready, with exactly these other objects.

    Args:
        replicas: Number of consumers.
        sides: Kinds of the objects other than the Deployment.
        waiting: Entries that wait in the subscription, as the status tells.
    """

    def check(record: NamespaceRecord) -> bool:
        consumer, deployment = record.get(PULSAR_CONSUMER, "orders"), record.get(
            DEPLOYMENT, "orders"
        )
        if deployment is None or is_deleting(deployment) or not is_observed(consumer):
            return False
        status = (consumer or {})["status"]
        asked = status.get("lastSeek") or {"outcome": "Done"}
        spec = (consumer or {})["spec"]
        retries = "retry" in spec
        listed = status.get("subscriptions") or ()
        shares = any(each["topic"].endswith("-ATTEMPTS") for each in listed)
        return (
            status.get("readyReplicas", 0) == deployment["spec"]["replicas"] == replicas
            and {kind for kind in _SIDES if record.list(kind)} == set(sides)
            and (status.get("backlog") or {}).get("entries", 0) == waiting
            and asked["outcome"] == "Done"
            and ("retry" in status) is retries
            and shares is ("deadLetter" in spec and not retries)
            and "abandonedSubscriptions" not in status
        )

    return check


def _needs_controller(deployment: Manifest, _: NamespaceRecord) -> bool:
    if is_deleting(deployment):
        return _FOREGROUND in (deployment["metadata"].get("finalizers") or ())
    return bool(
        (deployment.get("status") or {}).get("observedGeneration") != _generation(deployment)
    )


def _generation(deployment: Manifest) -> int:
    return int(deployment["metadata"]["generation"])


async def _run_pods(client: Client, deployment: Manifest, _: NamespaceRecord) -> None:
    """Let the pods of a Deployment run, or end with it."""
    key = key_of(deployment)
    if is_deleting(deployment):
        metadata = {"uid": uid_of(deployment), "finalizers": None}
        await client.patch(DEPLOYMENT, key, {"metadata": metadata})
        return
    status = {"status": build_rollout(deployment)}
    await client.patch(DEPLOYMENT, key, status, subresource="status")


_BROKER: Final = ExternalSystem(
    "pulsar",
    FakeBroker,
    # PulsarConsumers name the broker, which runs on the loopback address in a trial.
    arguments=lambda _: (
        "--allow-loopback-brokers=true",
        "--poll-seconds=1",
        # The broker shares the machine with all other trials: a slow answer is no fault.
        "--broker-timeout-seconds=10",
        # A late answer would add a write of the Deployment, on a busy machine only.
        "--broker-patience-seconds=5",
    ),
)


def _build(name: str, phases: tuple[Phase, ...]) -> Workload:
    return Workload(
        id=name,
        operator=OPERATOR,
        rules=OPERATOR.rules(),
        crds=(
            build_crd(PulsarConsumer),
            *map(build_open_crd, (POD_MONITOR, SCALED_OBJECT, TRIGGER_AUTHENTICATION)),
        ),
        primary=PULSAR_CONSUMER,
        children=(DEPLOYMENT, *_SIDES),
        phases=phases,
        invariants=(check_deployments,),
        components=(Component(DEPLOYMENT, _needs_controller, _run_pods),),
        outside=(_BROKER,),
        scaled={
            "operators.pulsarconsumer.controller": {"_EFFECT_RETRY": 0.3},
            "operators.pulsarconsumer.seeker": {"_EFFECT_RETRY": 0.3, "_POD_POLL": 0.3},
            "operators.pulsarconsumer.broker.broker_cache": {"_SILENCE": 0.3},
        },
    )


WORKLOADS: Final = (
    _build(
        "consume",
        (
            Phase("create", _create, runs(1, POD_DISRUPTION_BUDGET, POD_MONITOR, waiting=0)),
            Phase("change", _change, runs(3, POD_DISRUPTION_BUDGET, POD_MONITOR, waiting=0)),
            Phase("seek", _seek, runs(3, waiting=_KEPT)),
            Phase("share", _share, runs(3, waiting=_KEPT)),
            Phase("probe", _probe, runs(2, waiting=_KEPT), quiet=True),
            Phase("delete", _delete, is_empty),
        ),
    ),
    _build(
        "scale",
        (
            Phase("follow", _follow, runs(3, waiting=_BACKLOG)),
            Phase("by-cpu", _by_cpu, runs(1, HORIZONTAL_POD_AUTOSCALER, waiting=_BACKLOG)),
            Phase("tune-cpu", _tune_cpu, runs(1, HORIZONTAL_POD_AUTOSCALER, waiting=_BACKLOG)),
            Phase(
                "by-keda",
                change(PULSAR_CONSUMER, "orders", autoscaling={"engine": "KEDA"}),
                runs(1, SCALED_OBJECT, TRIGGER_AUTHENTICATION, waiting=_BACKLOG),
            ),
            Phase("tune", _tune, runs(1, SCALED_OBJECT, TRIGGER_AUTHENTICATION, waiting=_BACKLOG)),
            Phase("probe", _probe, runs(2, waiting=_BACKLOG), quiet=True),
            Phase("delete", _delete, is_empty),
        ),
    ),
)

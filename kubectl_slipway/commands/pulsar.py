"""`kubectl slipway pulsar`: the backlog of consumers; pause, resume, seek and redrive."""

from __future__ import annotations

import argparse
import re
import uuid
from typing import Any

from kubectl_slipway.cluster import Cluster
from kubectl_slipway.discovery import Resource
from kubectl_slipway.errors import Exit, PluginError
from kubectl_slipway.model import at, readiness, render_age
from kubectl_slipway.output import print_data, print_table

_GROUP = "consumer.pulsarconsumer.krvarma.com"


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Print the backlog, or change one PulsarConsumer."""
    resource = cluster.require(_GROUP, "PulsarConsumer", "pulsarconsumer")
    if options.action == "backlog":
        return _print_backlog(cluster, resource, options)
    consumer = cluster.get(resource, options.name)
    if options.action == "redrive":
        return _redrive(cluster, consumer, options)
    path = resource.path(cluster.namespace, options.name)
    if options.action == "seek":
        seek: dict[str, str] = {"id": f"cli-{uuid.uuid4().hex[:12]}"}
        seek.update(parse_position(options.to))
        # A merge patch keeps fields that it does not name: remove the position of an earlier seek.
        cleared = {key: None for key in ("position", "time") if key not in seek}
        cluster.api.patch(path, {"spec": {"subscription": {"seek": {**cleared, **seek}}}})
        print(f"PulsarConsumer/{options.name} moves its subscription to {options.to}")
        print(
            f"kubectl slipway pulsar backlog {options.name} shows the outcome of seek {seek['id']}"
        )
        return Exit.OK
    cluster.api.patch(path, {"spec": {"paused": options.action == "pause"}})
    print(f"PulsarConsumer/{options.name} {'paused' if options.action == 'pause' else 'resumed'}")
    return Exit.OK


def parse_position(text: str) -> dict[str, str]:
    """Parse the target of a seek: earliest, latest or a time.

    Raises:
        PluginError: The text is not a position.
    """
    if text.lower() in ("earliest", "latest"):
        return {"position": text.capitalize()}
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text):
        return {"time": text}
    raise PluginError(
        f"{text!r} is not a position.",
        "Use earliest, latest or a time such as 2026-11-20T08:00:00Z.",
        Exit.USAGE,
    )


def _redrive(cluster: Cluster, consumer: dict[str, Any], options: argparse.Namespace) -> Exit:
    """Send dead letters back with the command in a pod of the consumer.

    The consumer has the credentials of the broker; the user of the plugin needs none.

    Raises:
        PluginError: There is no dead-letter topic or no running pod.
    """
    if at(consumer, "spec.deadLetter") is None:
        raise PluginError(
            f"PulsarConsumer/{options.name} has no dead-letter topic.",
            "Set spec.deadLetter to keep messages that fail.",
        )
    path = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments/{options.name}"
    if not at(cluster.api.find(path) or {}, "status.readyReplicas"):
        raise PluginError(
            f"PulsarConsumer/{options.name} has no running pod, and the command runs in one.",
            "Resume it, or set spec.autoscaling.minReplicas to 1.",
        )
    command = ["exec", f"deployment/{options.name}", "--namespace", cluster.namespace]
    command += ["--", "/app/bin/python", "-P", "-m", "operators.pulsarconsumer.app.redrive"]
    if options.limit is not None:
        command += ["--limit", str(options.limit)]
    code = cluster.api.kubectl.run(*command)
    return Exit.OK if code == 0 else Exit.PROBLEM


def _print_backlog(cluster: Cluster, resource: Resource, options: argparse.Namespace) -> Exit:
    if options.name:
        consumers = [cluster.get(resource, options.name)]
    else:
        consumers = cluster.api.list(resource.path(cluster.namespace))
    rows = [
        {
            "name": each["metadata"]["name"],
            "topic": at(each, "status.topic") or "",
            "subscription": at(each, "status.subscription") or "",
            "consumers": at(each, "status.ready") or "",
            "entries": at(each, "status.backlog.entries"),
            "unacknowledged": at(each, "status.backlog.unacknowledged"),
            "rateIn": at(each, "status.backlog.rateIn"),
            "rateOut": at(each, "status.backlog.rateOut"),
            "oldest": at(each, "status.oldestMessageTime") or "",
            "retry": at(each, "status.retry.backlog"),
            "deadLetters": at(each, "status.deadLetter.backlog"),
            "seek": at(each, "status.lastSeek.outcome") or "",
            "ready": readiness(each).status,
        }
        for each in consumers
    ]
    if options.output != "table":
        print_data(rows, options.output)
    elif rows:
        print_table(
            (
                "NAME",
                "CONSUMERS",
                "ENTRIES",
                "UNACKED",
                "IN/S",
                "OUT/S",
                "OLDEST",
                "RETRY",
                "DEAD LETTERS",
                "SEEK",
            ),
            [
                (
                    each["name"],
                    each["consumers"],
                    *("-" if each[key] is None else each[key] for key in _NUMBERS),
                    render_age(str(each["oldest"]), cluster.now) or "-",
                    *("-" if each[key] is None else each[key] for key in ("retry", "deadLetters")),
                    each["seek"] or "-",
                )
                for each in rows
            ],
        )
    else:
        print(f"No PulsarConsumer in namespace {cluster.namespace}.")
    return Exit.OK


_NUMBERS = ("entries", "unacknowledged", "rateIn", "rateOut")

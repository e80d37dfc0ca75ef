"""Messages for the consumers of the demo, and how their number follows what waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from tools.cluster.errors import ToolError
from tools.cluster.kubectl import Kubectl
from tools.cluster.progress import Progress
from tools.pulsar.cluster import send

_IMAGE: Final = "slipway/pulsarconsumer-app:dev"
_MESSAGES: Final = 100
_BACKLOG: Final = 600
_SCALED: Final = "pulsarconsumer-autoscaling"
"""The example that has no consumers while nothing waits."""
_TOPIC: Final = "orders"
"""What it consumes."""
_SCALING_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 0.5


def send_to_consumers(kubectl: Kubectl, namespace: str, progress: Progress) -> list[str]:
    """Send messages, wait until consumers came and went, and return the last message of each log.

    Raises:
        ToolError: No messages could be sent, or nobody consumed them.
    """
    with progress.step(f"Sending {_MESSAGES} messages to my-topic"):
        send(kubectl, namespace, "my-topic", "hello", _MESSAGES, _IMAGE)
    with progress.step(f"Sending {_BACKLOG} messages to {_TOPIC}, which nobody consumes yet"):
        send(kubectl, namespace, _TOPIC, "order", _BACKLOG, _IMAGE)
    with progress.step("Scaling with the backlog, up and down to zero", "1 minute"):
        for line in _watch_scaling(kubectl, namespace):
            progress.say(f"  {line}")
    selector = "app.kubernetes.io/instance=pulsarconsumer-sample"
    shown = kubectl.read("logs", "--namespace", namespace, "--selector", selector, "--tail", "1")
    return [line for line in shown.splitlines() if '"logger":"message"' in line]


def _watch_scaling(kubectl: Kubectl, namespace: str) -> Iterator[str]:
    """Yield what changes, until consumers have come up and gone again.

    Raises:
        ToolError: They did not in time.
    """
    deadline = time.monotonic() + _SCALING_SECONDS
    most, last = 0, ""
    while time.monotonic() < deadline:
        status = kubectl.get("--namespace", namespace, "pulsarconsumer", _SCALED)["status"]
        running = status.get("readyReplicas", 0)
        waiting = status.get("backlog", {}).get("messagesEstimate", 0)
        line = f"{waiting:4} messages wait, consumers: {running}"
        if line != last:
            yield line
        most, last = max(most, running), line
        if most and not status.get("replicas", 0):
            return
        time.sleep(_POLL_SECONDS)
    raise ToolError(f"PulsarConsumer {_SCALED} was not scaled up and down again: {last}")

"""What operators of the demo need around them: a broker for consumers, and messages to consume."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tools.cluster.progress import Progress
from tools.dev.options import Target
from tools.pulsar.cluster import deploy_to_kind, send

_CONSUMER: Final = "pulsarconsumer"
_MESSAGES: Final = 100


def prepare(operators: Sequence[str], target: Target, namespace: str, progress: Progress) -> None:
    """Bring up what the examples refer to; a cluster of the user's own has it already.

    Raises:
        ToolError: It could not be made.
    """
    if _CONSUMER in operators and target.kind:
        deploy_to_kind(target.kind, namespace, progress)


def enliven(
    operators: Sequence[str], target: Target, namespace: str, progress: Progress
) -> list[tuple[str, str]]:
    """Give what is Ready something to do, and return what to look at: commands and why.

    Raises:
        ToolError: It could not be done.
    """
    if _CONSUMER not in operators or not target.kind:
        return []
    with progress.step(f"Sending {_MESSAGES} messages to my-topic"):
        image = "slipway/pulsarconsumer-app:dev"
        send(target.kubectl, namespace, "my-topic", "hello", _MESSAGES, image)
    where = "" if namespace == "default" else f" -n {namespace}"
    selector = "app.kubernetes.io/managed-by=pulsarconsumer"
    return [(f"./dev kubectl logs -l {selector} --tail 5{where}", "messages that were consumed")]

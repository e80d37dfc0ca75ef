"""kubectl as an object: one program, one kubeconfig, one context."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.cluster import commands
from tools.cluster.errors import CommandFailed, ToolError

_ANSWER_SECONDS: Final = 20.0
_REASON_WIDTH: Final = 300


def render_list(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Return objects as one document for the standard input of kubectl."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A kubectl for one cluster; kubeconfig and context None are the defaults of kubectl."""

    binary: Path
    kubeconfig: Path | None = None
    context: str | None = None

    def command(self, *arguments: str | Path) -> list[str]:
        """Return the whole command line for the arguments."""
        words = [str(self.binary)]
        if self.kubeconfig:
            words += ["--kubeconfig", str(self.kubeconfig)]
        if self.context:
            words += ["--context", self.context]
        return [*words, *(str(argument) for argument in arguments)]

    def read(self, *arguments: str | Path, stdin: str | None = None, seconds: float = 60.0) -> str:
        """Return what kubectl prints.

        Raises:
            CommandFailed: kubectl, or the server behind it, said no.
        """
        return commands.read(self.command(*arguments), stdin=stdin, seconds=seconds)

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return the object or list of `kubectl get`."""
        answer: dict[str, Any] = json.loads(self.read("get", *arguments, "--output", "json"))
        return answer

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the items of the list of `kubectl get`."""
        found: list[dict[str, Any]] = self.get(*arguments)["items"]
        return found

    def answers(self) -> bool:
        """Return whether the API server is ready."""
        return self.find_problem() is None

    def find_problem(self) -> str | None:
        """Return the error of kubectl if the API server cannot be used, or None."""
        command = self.command("get", "--raw", "/readyz", "--request-timeout", "5s")
        try:
            commands.read(command, seconds=_ANSWER_SECONDS)
        except CommandFailed as err:
            words = err.output.strip().splitlines() or ["it gives no reason"]
            return words[-1].removeprefix("error: ")[:_REASON_WIDTH]
        except ToolError as err:
            return str(err)
        return None


def is_condition_true(item: Mapping[str, Any], condition: str = "Ready") -> bool:
    """Return whether an object reports the condition as True."""
    found = item.get("status", {}).get("conditions", [])
    return any(one["type"] == condition and one["status"] == "True" for one in found)


def is_ready(item: Mapping[str, Any]) -> bool:
    """Return whether a node, pod or Deployment is ready, or a pod has succeeded."""
    if item["kind"] == "Deployment":
        return is_condition_true(item, "Available")
    ended: bool = item.get("status", {}).get("phase") == "Succeeded"
    return ended or is_condition_true(item)


def list_unready(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the nodes, pods and Deployments that are not ready."""
    return [item["metadata"]["name"] for item in items if not is_ready(item)]

"""Install an operator with helm and wait until its rollout succeeds or fails."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tools.cluster.binaries import provide_tool
from tools.cluster.cache import Cache
from tools.cluster.errors import CommandFailed, ToolError, UsageError
from tools.cluster.kubectl import Kubectl
from tools.cluster.progress import Progress
from tools.dev.operators import chart_of
from tools.dev.options import Target

_ROLLOUT_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 0.5
_HOPELESS: Final = frozenset({"InvalidImageName", "CreateContainerConfigError"})
"""Reasons that waiting does not fix."""
_WITHOUT_IMAGE: Final = frozenset({"ErrImageNeverPull", "ImagePullBackOff"})
"""Reasons that a different image fixes."""
_IMAGE_HINT: Final = (
    "The nodes cannot get this image: run `./dev load ID` to load it onto the nodes of the kind"
    " cluster; for another cluster, select an image that it can pull with --image"
)
_PATIENCE: Final = 3
"""Restarts or failed pulls after which a rollout counts as failed."""
_LOG_LINES: Final = 20
_UNFINISHED: Final = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")
"""Status labels of helm's record of a release while an operation is in progress."""
_INTERRUPTED: Final = ("another operation", "has no deployed releases")
"""Messages of helm about a release with such a record."""


@dataclass(frozen=True, slots=True)
class Release:
    """An operator, and the namespace that it is installed in."""

    operator: str
    namespace: str

    @property
    def selector(self) -> str:
        """Return the label selector of the operator's Deployment and pods."""
        return f"app.kubernetes.io/name={self.operator},app.kubernetes.io/instance={self.operator}"


def build_helm_command(
    helm: str, release: Release, target: Target, image: str | None, values: Sequence[str] = ()
) -> list[str]:
    """Return the helm command that installs or upgrades the release.

    Args:
        image: `repository:tag` or `repository@digest` to run; None keeps the image of the chart.
        values: Additional `key=value` pairs.

    Raises:
        UsageError: `image` has neither tag nor digest.
    """
    command = [helm, "upgrade", release.operator, str(chart_of(release.operator)), "--install"]
    command += ["--namespace", release.namespace, "--create-namespace", *target.helm_flags()]
    # CRDs outlive a release, and `./dev run` applies them as well: helm must adopt existing ones.
    command.append("--take-ownership")
    if image:
        repository, key, value = _split_image(image)
        command += ["--set-string", f"image.repository={repository}"]
        command += ["--set-string", f"image.{key}={value}"]
        if not _has_registry(repository):
            # Loaded onto the nodes; a registry may have another image of that name.
            command += ["--set-string", "image.pullPolicy=Never"]
    for pair in values:
        command += ["--set", pair]
    return command


def _has_registry(repository: str) -> bool:
    """Return whether a repository begins with a host, by the rule of container runtimes."""
    host, slash, _ = repository.partition("/")
    return bool(slash) and (host == "localhost" or "." in host or ":" in host)


def _split_image(image: str) -> tuple[str, str, str]:
    """Return the repository, "tag" or "digest", and its value; a digest takes precedence."""
    name, at, digest = image.partition("@")
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # A colon before a slash separates the port.
        repository, tag = name, ""
    if at:
        return repository, "digest", digest
    if not tag:
        raise UsageError(f"--image {image} has no tag: use repository:tag")
    return repository, "tag", tag


def install(
    release: Release,
    target: Target,
    image: str | None,
    progress: Progress,
    values: Sequence[str] = (),
) -> None:
    """Install or upgrade an operator and wait until its rollout is complete.

    Raises:
        ToolError: helm or the rollout failed; the message contains events and logs.
    """
    command = build_helm_command(
        str(provide_tool("helm", progress)), release, target, image, values
    )
    waiting = f"Waiting for another process that installs {release.operator}."
    with (
        progress.step(f"Installing {release.operator} into namespace {release.namespace}"),
        Cache().lock(
            f"install-{release.operator}-{release.namespace}", lambda: progress.say(waiting)
        ),
    ):
        run_helm(command, release, target, progress)
        _wait_for_rollout(release, target.kubectl, progress)


def run_helm(command: Sequence[str], release: Release, target: Target, progress: Progress) -> None:
    """Run a helm command, even if an earlier one on the release was interrupted.

    helm takes the record of an interrupted operation for one in progress, and does not wait for it.

    Raises:
        ToolError: helm failed, or another user may be running helm on a cluster that is not kind.
    """
    try:
        progress.run(command)
    except CommandFailed as err:
        if not any(sign in err.output for sign in _INTERRUPTED):
            raise
        selector = f"owner=helm,name={release.operator},status in ({','.join(_UNFINISHED)})"
        removal = ("delete", "secrets", "--namespace", release.namespace, "--selector", selector)
        if target.kind is None:
            raise ToolError(
                f"A helm operation on release {release.operator} in namespace {release.namespace}"
                " is in progress or was interrupted. If interrupted, remove its record and try"
                " again:\n"
                f"  kubectl {shlex.join(removal)}"
            ) from err
        progress.say("An earlier helm operation was interrupted; removing its record to try again.")
        target.kubectl.read(*removal)
        progress.run(command)


def uninstall(release: Release, target: Target, progress: Progress, *, hooks: bool = True) -> None:
    """Uninstall an operator; its CRDs and the objects of its kinds stay.

    Without `hooks`, its finalizers stay on the objects. Use this only if there are none.

    Raises:
        ToolError: The release does not exist, or helm failed.
    """
    helm = provide_tool("helm", progress)
    deployments = get_deployments(release, target.kubectl)
    if hooks and deployments and not any(map(is_rolled_out, deployments)):
        progress.say(
            f"{release.operator} is not running, so its clean-up may not run either and may block"
            " for minutes: --no-hooks skips it."
        )
    with progress.step(f"Uninstalling {release.operator} from namespace {release.namespace}"):
        command = [str(helm), "uninstall", release.operator, "--namespace", release.namespace]
        command += ["--wait", *([] if hooks else ["--no-hooks"]), *target.helm_flags()]
        try:
            progress.run(command)
        except CommandFailed as err:
            if "not found" not in err.output:
                raise
            raise ToolError(
                f"Release {release.operator} does not exist in namespace {release.namespace}: run"
                " `./dev status` to find it, and select its namespace with --namespace"
            ) from err


def is_rolled_out(deployment: Mapping[str, Any]) -> bool:
    """Return whether all replicas of a Deployment are up to date and available."""
    status = deployment.get("status", {})
    wanted = deployment["spec"].get("replicas", 1)
    counts = [status.get(key, 0) for key in ("updatedReplicas", "availableReplicas", "replicas")]
    observed: bool = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    return observed and all(count == wanted for count in counts)


def describe_pod(pod: Mapping[str, Any]) -> str:
    """Return a short description of what a pod is waiting for."""
    status = pod.get("status", {})
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting")
        if waiting:
            return f"{pod['metadata']['name']}: {waiting.get('reason', 'waiting')}"
        if not container.get("ready"):
            return f"{pod['metadata']['name']}: running, not ready"
    return f"{pod['metadata']['name']}: {status.get('phase', 'Pending')}"


def find_failure(pods: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why a rollout cannot succeed, or None if it still can."""
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", []):
            waiting = container.get("state", {}).get("waiting", {})
            reason = waiting.get("reason", "")
            crashed = reason == "CrashLoopBackOff" and container["restartCount"] >= _PATIENCE
            if reason in _HOPELESS or reason in _WITHOUT_IMAGE or crashed:
                messages = (
                    f"{pod['metadata']['name']}: {reason}: {waiting.get('message', '')}".strip()
                )
                return f"{messages}\n{_IMAGE_HINT}" if reason in _WITHOUT_IMAGE else messages
    return None


def get_deployments(release: Release, kubectl: Kubectl) -> list[dict[str, Any]]:
    """Return the Deployments of a release: one, or none if the operator is not installed."""
    scope = ("--namespace", release.namespace, "--selector", release.selector)
    return kubectl.items("deployments", *scope)


def _wait_for_rollout(release: Release, kubectl: Kubectl, progress: Progress) -> None:
    scope = ("--namespace", release.namespace, "--selector", release.selector)
    deadline = time.monotonic() + _ROLLOUT_SECONDS
    while True:
        deployments = get_deployments(release, kubectl)
        if deployments and all(map(is_rolled_out, deployments)):
            return
        pods = kubectl.items("pods", *scope)
        failure = find_failure(pods)
        if failure is None and time.monotonic() > deadline:
            failure = f"not ready after {_ROLLOUT_SECONDS:g} s"
        if failure:
            raise ToolError(_explain(release, kubectl, failure))
        progress.note(", ".join(map(describe_pod, pods)) or "waiting for pods")
        time.sleep(_POLL_SECONDS)


def _explain(release: Release, kubectl: Kubectl, failure: str) -> str:
    scope = ("--namespace", release.namespace)
    parts = [f"Operator {release.operator} in namespace {release.namespace}: {failure}"]
    # Keep only lines about this operator, because a namespace has many events.
    prefix = f"/{release.operator}-"
    questions = {
        "Events": ("get", "events", *scope, "--sort-by", ".lastTimestamp", "--no-headers"),
        "Logs": ("logs", *scope, "--selector", release.selector, "--tail", str(_LOG_LINES)),
    }
    for title, question in questions.items():
        try:
            lines = kubectl.read(*question).splitlines()
        except CommandFailed as err:
            lines = err.output.splitlines()
        kept = [line for line in lines if title == "Logs" or prefix in line][-_LOG_LINES:]
        if kept:
            parts.append("\n".join([f"{title}:", *(f"  {line}" for line in kept)]))
    return "\n".join(parts)

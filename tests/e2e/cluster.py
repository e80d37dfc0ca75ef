"""What the end-to-end tests do to a cluster: namespaces, releases, commands, waiting."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import yaml

from libs.common.client import Client
from libs.common.conditions import find_condition
from libs.common.errors import NotFound
from libs.common.kinds import (
    DEPLOYMENT,
    NAMESPACE,
    POD,
    Key,
    Kind,
    Manifest,
    build_object,
    key_of,
    uid_of,
)


class Serve(Protocol):
    """Install an operator for all tests of a module."""

    def __call__(self, operator: str, **values: object) -> None:
        """Install an operator by its id, with values of its chart as `Cluster.install` has them."""


ROOT: Final = Path(__file__).resolve().parents[2]
_POLL: Final = 0.2
_TIMEOUT: Final = float(os.environ.get("SLIPWAY_E2E_TIMEOUT", "600"))
"""Seconds to wait for what has to happen; real machines take longer to boot than simulated ones."""
_LABEL: Final = {"created-by": "slipway-e2e"}
_RUN: Final = secrets.token_hex(2)
_numbers = itertools.count()


def build_busybox(*command: str, mounts: Mapping[str, str] | None = None) -> Manifest:
    """Build the spec of a pod that every namespace admits, and that ends when it gets a signal.

    Args:
        *command: What its container runs.
        mounts: Claims that it uses, each with its mount path.
    """
    mounts = mounts or {}
    container = {
        "name": "main",
        "image": "busybox",
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": claim, "mountPath": path} for claim, path in mounts.items()],
    }
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in mounts]
    return {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 0}


async def eventually(
    probe: Callable[[], Awaitable[object]], what: str, timeout: float = _TIMEOUT
) -> None:
    """Wait until a probe returns something true and raises neither AssertionError nor NotFound.

    Raises:
        AssertionError: It never did; the message has the last reason.
    """
    last: object = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    last = await probe()
                    if last:
                        return
                except (AssertionError, NotFound) as err:
                    last = err
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise AssertionError(f"Not within {timeout:g} s: {what} (last: {last})") from None


TAKE_OVER: Final = ("--take-ownership", "--force-conflicts")
"""Options of Helm for the CRDs, which stay when a release is uninstalled, with the marks of that
release and of what installed it, such as Flux; the next release takes them."""
_LOADED: Final = {"image__pullPolicy": "Never"}
"""The nodes have the images, and no registry does."""


@dataclass(slots=True)
class Cluster:
    """A cluster, its tools, and what was made on it.

    Attributes:
        kubeconfig: Credentials with all rights.
        helm: The helm program.
        kubectl: The kubectl program.
        images: Reference of each operator's image in the nodes.
        client: Connection with all rights.
    """

    kubeconfig: Path
    helm: Path
    kubectl: Path
    images: Mapping[str, str]
    client: Client
    _namespaces: list[str] = field(default_factory=list)
    _releases: list[tuple[str, str]] = field(default_factory=list)

    async def make_namespace(self, prefix: str, **labels: str) -> str:
        """Make a namespace that no other test uses."""
        name = f"e2e-{prefix}-{_RUN}-{next(_numbers)}"
        manifest = build_object(NAMESPACE, name, metadata={"labels": {**_LABEL, **labels}})
        await self.client.create(NAMESPACE, manifest)
        self._namespaces.append(name)
        return name

    async def install(
        self, operator: str, namespace: str, *, wait: bool = True, **values: object
    ) -> None:
        """Install or upgrade an operator from its chart, with the image under test.

        Args:
            operator: Id of the operator.
            namespace: Namespace of the release.
            wait: Wait until helm sees the roll-out done.
            values: Values of the chart; dots are written as double underscores.
        """
        repository, _, tag = self.images[operator].rpartition(":")
        pairs = {"image__repository": repository, "image__tag": tag, **_LOADED, **values}
        args = ["upgrade", "--install", operator, str(ROOT / "helm" / operator)]
        args += ["--namespace", namespace, "--timeout", "15m", *TAKE_OVER]
        args += ["--wait"] if wait else []
        for name, value in pairs.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            args += ["--set", f"{name.replace('__', '.')}={text}"]
        await self.run(self.helm, *args)
        self.remember(operator, namespace)

    def remember(self, release: str, namespace: str) -> None:
        """Uninstall a release during the clean-up."""
        if (release, namespace) not in self._releases:
            self._releases.append((release, namespace))

    async def uninstall(self, operator: str, namespace: str) -> None:
        """Uninstall a release and wait until helm is done."""
        await self.run(
            self.helm, "uninstall", operator, "--namespace", namespace, "--wait", "--timeout", "15m"
        )
        with contextlib.suppress(ValueError):  # Installed by another one of us.
            self._releases.remove((operator, namespace))

    async def clean_up(self) -> None:
        """Remove every release and namespace that was made here."""
        await self.remove(list(self._releases))
        for name in self._namespaces:
            await self.delete(NAMESPACE, Key("", name))
        self._namespaces.clear()

    async def remove(self, releases: Sequence[tuple[str, str]]) -> None:
        """Remove releases, by operator and namespace, with their namespaces."""
        for operator, namespace in releases:
            await self.uninstall(operator, namespace)
            if namespace not in self._namespaces:
                await self.delete(NAMESPACE, Key("", namespace))

    async def run(self, program: Path, *args: str, stdin: str = "") -> str:
        """Run helm or kubectl against the cluster and return what it printed.

        Raises:
            AssertionError: It failed; the message is what it said.
        """
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}

        def call() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [str(program), *args],
                input=stdin,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )

        done = await asyncio.to_thread(call)
        said = done.stderr or done.stdout
        assert done.returncode == 0, f"{program.name} {' '.join(args)}: {said}"
        return done.stdout

    async def kubectl_run(self, namespace: str, *args: str, stdin: str = "") -> str:
        """Run kubectl in a namespace, as a user does."""
        return await self.run(self.kubectl, "--namespace", namespace, *args, stdin=stdin)

    async def apply_example(self, operator: str, name: str, namespace: str) -> list[Manifest]:
        """Apply an example file of an operator and return its objects."""
        path = ROOT / "operators" / operator / "examples" / f"{name}.yaml"
        await self.kubectl_run(namespace, "apply", "--filename", str(path))
        return [document for document in yaml.safe_load_all(path.read_text()) if document]

    async def wait_ready(self, kind: Kind, key: Key, condition: str = "Ready") -> Manifest:
        """Wait until an object reports a condition as True for its present generation."""
        held: Manifest = {}

        async def probe() -> bool:
            held.clear()
            held.update(await self.client.get(kind, key))
            found = find_condition(held, condition) or {}
            assert found.get("observedGeneration") == held["metadata"].get("generation"), found
            assert found.get("status") == "True", found
            return True

        await eventually(probe, f"{kind.kind} {key} is {condition}")
        return held

    async def running_pods(self, namespace: str, selector: str) -> list[Manifest]:
        """Return the pods that run and are not being deleted."""
        listing = await self.client.list(POD, namespace, label_selector=selector)
        return [
            pod
            for pod in listing.items
            if pod["status"].get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        ]

    async def delete(self, kind: Kind, key: Key, *, grace_seconds: int | None = None) -> None:
        """Delete an object as it is now, and do not wait."""
        manifest = await self.client.get(kind, key)
        await self.client.delete(kind, key, uid=uid_of(manifest), grace_seconds=grace_seconds)

    async def wait_gone(self, kind: Kind, key: Key) -> None:
        """Wait until an object does not exist any more."""

        async def probe() -> bool:
            try:
                await self.client.get(kind, key)
            except NotFound:
                return True
            return False

        await eventually(probe, f"{kind.kind} {key} is gone")

    async def wait_deployed(self, namespace: str, operator: str) -> None:
        """Wait until all replicas of an operator are available."""

        async def probe() -> bool:
            deployment = await self.client.get(DEPLOYMENT, Key(namespace, operator))
            wanted, status = deployment["spec"]["replicas"], deployment.get("status", {})
            return bool(status.get("availableReplicas") == wanted == status.get("updatedReplicas"))

        await eventually(probe, f"operator {operator} is rolled out")

    async def explain(self, namespaces: Sequence[str]) -> str:
        """Return the state of the namespaces after a failure."""
        parts: list[str] = []
        for namespace in namespaces:
            for args in (
                ("get", "all,pvc,lease"),
                ("get", "events", "--sort-by", ".metadata.creationTimestamp"),
                ("logs", "--selector", "app.kubernetes.io/name", "--tail", "60", "--prefix"),
            ):
                try:
                    text = await self.kubectl_run(namespace, *args)
                except AssertionError as err:
                    text = str(err)
                parts.append(f"--- {namespace}: {' '.join(args)}\n{text}")
        return "\n".join(parts)

    @property
    def namespaces(self) -> list[str]:
        """Namespaces that were made and not yet removed."""
        return list(self._namespaces)


def names_of(manifests: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the sorted names of objects."""
    return sorted(key_of(manifest).name for manifest in manifests)

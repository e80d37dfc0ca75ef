"""Churn: objects that come, change and go, on a real API server, while the operator is measured."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.fuzz.children import kind_of_child
from lab.fuzz.subject import FuzzSubject
from lab.soak.measure import Sample, find_growth, take_sample
from lab.sweep.probes import read_probes
from libs.common.client import Client
from libs.common.errors import AlreadyExists, SlipwayError
from libs.common.kinds import NAMESPACE, Key, Manifest, build_object, uid_of
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.ports import find_free_port
from libs.common.testing.serving import kinds_of, serve

_HOME: Final = "soak"
_OBJECTS: Final = 20
_LOOK: Final = 5.0
_DRAIN: Final = 30.0


@dataclass(slots=True)
class Churn:
    """The results of a run.

    Attributes:
        samples: What the process held, as time went by.
        changes: Objects that were created, changed or deleted.
        problems: What is wrong, in words.
    """

    samples: list[Sample] = field(default_factory=list)
    changes: int = 0
    problems: list[str] = field(default_factory=list)


async def run_churn(subject: FuzzSubject, seconds: float, log: Path, period: float = 0.2) -> Churn:
    """Run an operator for a while.

    Args:
        subject: Kind that comes, changes and goes.
        seconds: How long.
        log: Where the log of the operator goes.
        period: Seconds between two of these.
    """
    churn = Churn()
    with ControlPlane() as control_plane, tempfile.TemporaryDirectory() as folder:
        control_plane.start_controller_manager()
        kubeconfig = control_plane.write_kubeconfig(Path(folder) / "config", namespace=_HOME)
        async with Client(control_plane.config) as client:
            await _prepare(client, subject)
            port = find_free_port()
            process = _start(subject.operator, kubeconfig, port, log)
            try:
                work = _churn(client, subject, period, churn)
                churn.samples = await _measure(work, process, port, seconds)
            finally:
                process.terminate()
                process.wait()
    for sample in churn.samples[:: max(1, len(churn.samples) // 20)]:
        print(_render(sample))
    ended = [f"the process ended with {process.returncode}"] if process.returncode > 0 else []
    churn.problems = ended + find_growth(churn.samples)
    return churn


async def _prepare(client: Client, subject: FuzzSubject) -> None:
    crds = [subject.crd] if subject.live is None else [dict(each) for each in subject.live.crds]
    for crd in crds:
        crd["metadata"].setdefault("annotations", {})["api-approved.kubernetes.io"] = "unapproved"
    await serve(client, *crds)
    namespace: Manifest = build_object(NAMESPACE, _HOME)
    await client.create(NAMESPACE, namespace)
    kinds = {(kind.api_version, kind.kind): kind for crd in crds for kind in kinds_of(crd)}
    for manifest in () if subject.live is None else subject.live.initial_objects():
        kind = kinds.get((manifest["apiVersion"], manifest["kind"])) or kind_of_child(manifest)
        if kind is not None:
            metadata = dict(manifest["metadata"])
            if kind.namespaced:
                metadata["namespace"] = _HOME
            with contextlib.suppress(AlreadyExists):
                await client.create(kind, {**manifest, "metadata": metadata})


def _start(operator: str, kubeconfig: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{port}"
    flags = {
        "kubeconfig": kubeconfig,
        "watch-namespaces": _HOME,
        "pod-namespace": _HOME,
        "leader-elect": "false",
        "metrics-bind-address": address,
        "health-probe-bind-address": address,
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    with log.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", f"operators.{operator}", *arguments],
            stdout=stream,
            stderr=stream,
        )


async def _measure(
    work: Coroutine[None, None, None], process: subprocess.Popen[bytes], port: int, seconds: float
) -> list[Sample]:
    samples: list[Sample] = []
    started = time.monotonic()

    async def take() -> None:
        metrics = (await read_probes(port)).metrics
        samples.append(take_sample(process.pid, time.monotonic() - started, metrics))

    churn = asyncio.create_task(work)
    try:
        while time.monotonic() - started < seconds and process.poll() is None:
            await asyncio.sleep(_LOOK)
            await take()
    finally:
        churn.cancel()
        await asyncio.gather(churn, return_exceptions=True)
    deadline = time.monotonic() + _DRAIN
    while process.poll() is None and time.monotonic() < deadline:
        await take()
        if not samples[-1].depth:
            break
        await asyncio.sleep(1.0)
    return samples


async def _churn(client: Client, subject: FuzzSubject, period: float, churn: Churn) -> None:
    """Create, change and delete objects, each in its turn."""
    number = 0
    while True:
        name = f"churn-{number % _OBJECTS}"
        with contextlib.suppress(SlipwayError):
            await _turn(client, subject, name, number // _OBJECTS)
            churn.changes += 1
        number += 1
        await asyncio.sleep(period)


async def _turn(client: Client, subject: FuzzSubject, name: str, turn: int) -> None:
    key = Key(_HOME if subject.kind.namespaced else "", name)
    if turn % 3 == 0:
        manifest = copy.deepcopy(subject.build(name))
        manifest["metadata"] = {"name": name}
        if subject.kind.namespaced:
            manifest["metadata"]["namespace"] = _HOME
        await client.create(subject.kind, manifest)
    elif turn % 3 == 1:
        change = subject.live.change if subject.live is not None else {}
        await client.patch(subject.kind, key, dict(change))
    else:
        live = await client.get(subject.kind, key)
        await client.delete(subject.kind, key, uid=uid_of(live))


def _render(sample: Sample) -> str:
    return (
        f"{sample.second:6.0f} s  {sample.memory / 1024:6.1f} MiB  {sample.files:4} files  "
        f"{sample.threads:3} threads  {sample.depth:4.0f} keys"
    )


def choose(subjects: Sequence[FuzzSubject], operator: str) -> FuzzSubject:
    """Return the first kind of an operator.

    Raises:
        ValueError: It has none.
    """
    for subject in subjects:
        if subject.operator == operator:
            return subject
    raise ValueError(f"{operator}: no subject in lab/fuzz/subjects")

"""Pods near their memory limit, with injectors that are charged to the pod as on a node.

The control groups are as the kubelet makes them for a pod whose containers have limits: the pod
has the sum of the limits, and the ephemeral container has none of its own. All processes have the
score that the kubelet gives to containers with a small request, so that the kernel kills the JVM,
the largest process, if the pod runs out of memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from libs.common.testing.ports import find_free_port
from operators.jmxexporter.injector.__main__ import MESSAGE_VARIABLE
from operators.jmxexporter.injector.messages import (
    CONFIG_VARIABLE,
    KIT_VARIABLE,
    REQUEST_VARIABLE,
    Action,
    Report,
    State,
)
from operators.jmxexporter.injector.precheck import (
    INJECTOR_BYTES,
    PRECHECK_VARIABLE,
    render_precheck,
)
from operators.jmxexporter.jvms import CONFIG, Jvm, build_request, wait_until
from operators.jmxexporter.reasons import Reason

type Start = Callable[..., Jvm]
CGROUPS: Final = Path("/sys/fs/cgroup/memory")
ROOT: Final = Path(__file__).parents[3]
MIB: Final = 1 << 20
SCORE: Final = 999
# The container is the first process of its own, and sees its own control group and /tmp.
CONTAINER: Final = """
echo 0 > {app}/cgroup.procs && echo {score} > /proc/self/oom_score_adj &&
mount --bind {app} {cgroups} && mount --bind {tmp} /tmp && exec "$@"
"""
INJECTOR: Final = """
echo 0 > {injector}/cgroup.procs && echo {score} > /proc/self/oom_score_adj && exec "$@"
"""


@dataclass
class PodGroups:
    """The control groups of a pod with one container and an injector."""

    pod: Path
    tmp: Path
    names: Mapping[str, object] = field(init=False)

    def __post_init__(self) -> None:
        self.names = {
            "app": self.pod / "app",
            "injector": self.pod / "injector",
            "cgroups": CGROUPS,
            "tmp": self.tmp,
            "score": SCORE,
        }
        for directory in (self.pod, self.pod / "app", self.pod / "injector"):
            directory.mkdir()

    def remove(self) -> None:
        """Remove the groups once their processes have ended."""

        def is_removed() -> bool:
            for directory in (self.pod / "app", self.pod / "injector", self.pod):
                if directory.exists():
                    try:
                        directory.rmdir()
                    except OSError:
                        return False
            return True

        wait_until(is_removed)

    def start(self, start_jvm: Start, release: int) -> Jvm:
        """Start a JVM whose heap is touched from the start as the container of the pod."""
        script = CONTAINER.format(**self.names)
        unshare = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        prefix = (*unshare, "sh", "-c", script, "sh")
        return start_jvm("-Xms64m", "-XX:+AlwaysPreTouch", release=release, prefix=prefix)

    def limit(self, room: int) -> None:
        """Leave so many bytes free below the limits of the pod and of its container."""
        used = int((self.pod / "memory.usage_in_bytes").read_text())
        for directory in (self.pod, self.pod / "app"):
            (directory / "memory.limit_in_bytes").write_text(str(used + room))

    def find_container(self) -> int:
        """Return the id of the JVM for us."""
        return int((self.pod / "app/cgroup.procs").read_text().split()[0])

    def inject(self, jars: Path, message: Path, need: int, memory: int, limit: int = 0) -> Report:
        """Run an injector as the kubelet does: in the pod, with the processes of the container."""
        request = build_request(Action.ENSURE, port=find_free_port(), memory_bytes=memory)
        message.touch()
        environ = {
            **os.environ,
            REQUEST_VARIABLE: request.render(),
            PRECHECK_VARIABLE: render_precheck(need, limit, ""),
            CONFIG_VARIABLE: CONFIG,
            KIT_VARIABLE: str(jars),
            MESSAGE_VARIABLE: str(message),
        }
        script = ("sh", "-c", INJECTOR.format(**self.names), "sh")
        enter = ("nsenter", "--target", str(self.find_container()), "--pid")
        mount = ("unshare", "--mount", "--mount-proc")
        command = (sys.executable, "-P", "-m", "operators.jmxexporter.injector")
        subprocess.run(
            [*script, *enter, *mount, *command],
            cwd=ROOT,
            env={**environ, "PYTHONPATH": str(ROOT)},
            check=False,
            timeout=90,
        )
        return Report.parse(message.read_text() or "{}")

    def count_kills(self) -> int:
        """Return how often the kernel has killed a process for memory."""
        controls = (self.pod / each / "memory.oom_control" for each in ("app", "injector", "."))
        return sum(int(control.read_text().split()[-1]) for control in controls)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[PodGroups]:
    if not os.access(CGROUPS, os.W_OK) or os.geteuid():
        pytest.skip("needs root and version 1 of control groups, mounted for writing")
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    pod = PodGroups(CGROUPS / f"slipway-pod-{os.getpid()}", tmp)
    yield pod
    pod.remove()


@pytest.mark.parametrize(("room", "state"), [(8, None), (32, State.REFUSED), (160, State.SERVING)])
def test_pod_near_its_limit_is_not_harmed_by_the_injector_itself(
    pod: PodGroups,
    start_jvm: Start,
    jvm_kit: Path,
    tmp_path: Path,
    release: int,
    room: int,
    state: State | None,
) -> None:
    pod.start(start_jvm, release)
    pod.limit(room * MIB)

    report = pod.inject(jvm_kit, tmp_path / "message", INJECTOR_BYTES, 96 * MIB)

    assert pod.count_kills() == 0
    assert [jvm.state for jvm in report.jvms] == ([state] if state else []), report
    refused = Reason.TOO_LITTLE_MEMORY if state is not State.SERVING else ""
    assert {report.reason, *(jvm.reason for jvm in report.jvms)} <= {refused, ""}, report
    assert state or report.reason == refused, report


def test_injector_takes_less_than_it_asks_for_and_little_for_its_first_checks(
    pod: PodGroups, start_jvm: Start, jvm_kit: Path, tmp_path: Path
) -> None:
    pod.start(start_jvm, 25)
    group = pod.pod / "injector/memory.max_usage_in_bytes"
    # A limit of one byte, which is exceeded.
    refused = pod.inject(jvm_kit, tmp_path / "first", need=1, memory=0, limit=1)
    first = int(group.read_text())
    group.write_text("0")

    report = pod.inject(jvm_kit, tmp_path / "second", need=0, memory=0)

    assert refused.reason == Reason.TOO_LITTLE_MEMORY
    assert [jvm.state for jvm in report.jvms] == [State.SERVING], report
    assert first < 6 * MIB
    assert int(group.read_text()) < INJECTOR_BYTES * 3 / 4

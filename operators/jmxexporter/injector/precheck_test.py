"""The first checks of an injector: what they cost, what they see, and how they report it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from operators.jmxexporter.injector import precheck
from operators.jmxexporter.injector.__main__ import MESSAGE_VARIABLE, main
from operators.jmxexporter.injector.messages import Report
from operators.jmxexporter.injector.precheck import (
    PRECHECK_VARIABLE,
    find_refusal,
    list_processes,
    read_free_memory,
    render_precheck,
)
from operators.jmxexporter.reasons import Reason

type ShowProcess = Callable[..., str]
MIB = 1 << 20
ROOT = Path(__file__).parents[3]
LIBRARY = "7f00-7f01 r-xp 0 00:00 1 /opt/java/lib/server/libjvm.so\n"


@pytest.fixture
def show_process(tmp_path: Path) -> ShowProcess:
    """Show processes below `tmp_path` as /proc shows them."""

    def show(
        pid: int,
        *,
        maps: str | None = "",
        command: Sequence[str] = ("sleep", "9"),
        free: int | None = None,
        anonymous: int = 0,
        container: str = "c1",
    ) -> str:
        directory = tmp_path / str(pid)
        directory.mkdir()
        if maps is not None:
            (directory / "maps").write_text(maps)
        (directory / "comm").write_text(f"{command[0].rpartition('/')[2]}\n")
        (directory / "cmdline").write_text("".join(f"{word}\0" for word in command))
        (directory / "cgroup").write_text(f"0::/../cri-containerd-{container}.scope\n")
        (directory / "status").write_text(
            f"Name:\tx\nRssAnon:\t{anonymous >> 10} kB\nRssFile:\t99999 kB\nRssShmem:\t4 kB\n"
        )
        if free is not None:
            group = directory / "root/sys/fs/cgroup"
            group.mkdir(parents=True)
            (group / "memory.max").write_text(f"{100 * MIB}\n")
            (group / "memory.current").write_text(f"{100 * MIB - free}\n")
            (group / "memory.stat").write_text("inactive_file 0\n")
        return str(directory)

    return show


def check(proc: Path, *, need: int = 24 * MIB, limit: int = 0, container: str = "") -> Report:
    """Run the checks; the report of an injector that may continue is empty."""
    value = render_precheck(need, limit, container)
    return Report.parse(find_refusal({PRECHECK_VARIABLE: value}, str(proc)) or "{}")


def test_first_checks_load_no_module_that_the_interpreter_has_not_loaded() -> None:
    code = (
        "import os, sys; before = set(sys.modules); sys.path.insert(0, '.');"
        "import operators.jmxexporter.injector.__main__;"
        "print(*sorted(set(sys.modules) - before))"
    )

    output = subprocess.check_output([sys.executable, "-S", "-c", code], cwd=ROOT, text=True)

    assert {name for name in output.split() if not name.startswith("operators")} == set()


def test_container_with_room_is_left_to_the_other_checks(
    tmp_path: Path, show_process: ShowProcess
) -> None:
    show_process(1, maps=LIBRARY, free=24 * MIB)

    assert check(tmp_path) == Report()


def test_report_of_the_first_checks_is_the_termination_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precheck, "volunteer_for_oom_killer", lambda: None)
    message = tmp_path / "message"
    value = render_precheck(0, 0, "no-such-container")

    assert main({PRECHECK_VARIABLE: value, MESSAGE_VARIABLE: str(message)}) == 0

    assert Report.parse(message.read_text()).reason == Reason.NO_JVM_FOUND


def test_container_without_room_for_an_injector_is_refused(
    tmp_path: Path, show_process: ShowProcess
) -> None:
    show_process(1)
    show_process(7, maps=LIBRARY, free=24 * MIB - 1)

    report = check(tmp_path)

    assert report.reason == Reason.TOO_LITTLE_MEMORY
    assert "23 MiB left" in report.message and "needs 24 MiB" in report.message
    assert check(tmp_path, need=23 * MIB) == Report()


def test_container_without_a_jvm_is_reported_at_no_further_cost(
    tmp_path: Path, show_process: ShowProcess
) -> None:
    """For example a sidecar near its own limit, whose memory an injector does not take."""
    show_process(1, free=0)

    assert check(tmp_path).reason == Reason.NO_JVM_FOUND


@pytest.mark.parametrize(
    ("command", "found"),
    [(("/opt/java/bin/java", "-jar", "x.jar"), True), (("java",), True), (("javac",), False)],
)
def test_jvm_of_another_user_is_known_by_its_name(
    tmp_path: Path, show_process: ShowProcess, command: Sequence[str], found: bool
) -> None:
    show_process(1, maps=None, command=command)

    assert (check(tmp_path).reason == Reason.NO_JVM_FOUND) is not found


def test_limit_of_the_specification_counts_where_control_groups_cannot_be_read(
    tmp_path: Path, show_process: ShowProcess
) -> None:
    show_process(1, maps=LIBRARY, anonymous=70 * MIB)
    show_process(9, anonymous=10 * MIB)

    members = list_processes(str(tmp_path))
    free = read_free_memory(members[0], 100 * MIB, members)

    assert free == 20 * MIB - 2 * 4096
    assert check(tmp_path, limit=100 * MIB).reason == Reason.TOO_LITTLE_MEMORY
    assert check(tmp_path, limit=128 * MIB) == Report()
    assert check(tmp_path) == Report(), "a container without a limit"


def test_processes_of_other_containers_do_not_count(
    tmp_path: Path, show_process: ShowProcess
) -> None:
    """The containers of the pod share their processes."""
    show_process(1, maps=LIBRARY, free=0, container="other")
    show_process(8, maps=LIBRARY, free=90 * MIB, container="c1")

    assert check(tmp_path, container="c1") == Report()
    assert check(tmp_path, container="other").reason == Reason.TOO_LITTLE_MEMORY
    assert check(tmp_path, container="third").reason == Reason.NO_JVM_FOUND


def test_process_that_ends_during_the_checks_is_passed_over(
    tmp_path: Path, show_process: ShowProcess
) -> None:
    (tmp_path / "1").mkdir()
    show_process(2, maps=LIBRARY, free=90 * MIB)

    assert check(tmp_path) == Report()
    assert str(os.getpid()) not in list_processes(str(tmp_path))

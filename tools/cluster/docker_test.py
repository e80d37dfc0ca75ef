"""The private daemon: how it is started, and that only it is taken for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.cluster import debian
from tools.cluster.cache import Cache
from tools.cluster.docker import (
    build_daemon_command,
    ensure_docker,
    own_daemon_pid,
    place_wrapper,
    stop_docker,
)
from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress


def test_daemon_leaves_the_firewall_alone() -> None:
    command = build_daemon_command(Path("/home/d"), Path("/run/d"), None)

    assert {"--iptables=false", "--ip6tables=false", "--ip-masq=false"} <= set(command)
    assert "--default-runtime" not in command


def test_daemon_uses_the_wrapper_where_there_is_one() -> None:
    command = build_daemon_command(Path("/home/d"), Path("/run/d"), Path("/w"))

    assert command[command.index("--add-runtime") + 1] == "capable=/w"
    assert command[command.index("--default-runtime") + 1] == "capable"


def test_wrapper_is_outside_of_the_checkout_that_starts_the_daemon(tmp_path: Path) -> None:
    first = place_wrapper(tmp_path)
    again = place_wrapper(tmp_path)

    assert first == again
    assert list(tmp_path.iterdir()) == [again]
    assert os.access(again, os.X_OK)
    assert again.read_text().startswith("#!/bin/sh")


def test_process_number_of_another_program_is_not_the_daemon(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    pid_file = cache.path("docker", "docker.pid")
    pid_file.write_text(str(os.getpid()))

    assert own_daemon_pid(cache) is None
    assert stop_docker(cache) is False


def test_no_process_number_is_no_daemon(tmp_path: Path) -> None:
    assert own_daemon_pid(Cache(tmp_path)) is None


def test_docker_that_does_not_answer_is_told_in_its_own_words(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Paths of sockets are short.
    place = tmp_path_factory.mktemp("d")
    program = place / "bin" / "docker"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho permission denied: /var/run/docker.sock >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(debian, "is_debian_root", lambda: False)

    with pytest.raises(
        ToolError, match=r"Docker does not respond: .*\(permission denied: /var/run/"
    ):
        ensure_docker(Progress(place / "log"), Cache(place))

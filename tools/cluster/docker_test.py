"""The private daemon: how it is started, and that only it is taken for it."""

from __future__ import annotations

import os
from pathlib import Path

from tools.cluster.cache import Cache
from tools.cluster.docker import build_daemon_command, own_daemon_pid, stop_docker


def test_daemon_leaves_the_firewall_alone() -> None:
    command = build_daemon_command(Path("/home/d"), Path("/run/d"), None)

    assert {"--iptables=false", "--ip6tables=false", "--ip-masq=false"} <= set(command)
    assert "--default-runtime" not in command


def test_daemon_uses_the_wrapper_where_there_is_one() -> None:
    command = build_daemon_command(Path("/home/d"), Path("/run/d"), Path("/w"))

    assert command[command.index("--add-runtime") + 1] == "capable=/w"
    assert command[command.index("--default-runtime") + 1] == "capable"


def test_process_number_of_another_program_is_not_the_daemon(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    pid_file = cache.path("docker", "docker.pid")
    pid_file.write_text(str(os.getpid()))

    assert own_daemon_pid(cache) is None
    assert stop_docker(cache) is False


def test_no_process_number_is_no_daemon(tmp_path: Path) -> None:
    assert own_daemon_pid(Cache(tmp_path)) is None

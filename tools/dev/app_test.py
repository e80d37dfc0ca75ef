"""The command line: what it offers, and how it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tools.cluster.command_line import run
from tools.cluster.kubectl import Kubectl
from tools.dev import cluster_commands
from tools.dev.app import app
from tools.dev.operator_commands import build_local_settings
from tools.dev.operators import ROOT
from tools.dev.options import Target

COMMANDS = [
    *("demo", "up", "down", "status", "kubeconfig", "kubectl", "kubevirt-sim", "guest-image"),
    *("load", "install", "uninstall", "logs", "run"),
    *("test", "generate", "release", "bench", "sweep"),
]


def run_dev(cache: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SLIPWAY_CACHE": str(cache), "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", "tools.dev", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_the_command_with_what_it_does(command: str) -> None:
    lines = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"}).output.splitlines()
    (line,) = [line for line in lines if line.startswith(f"│ {command} ")]

    assert len(line.split()) > 4


def test_error_is_one_line_and_a_status(tmp_path: Path) -> None:
    done = run_dev(tmp_path, "kubeconfig")

    assert done.returncode == 1
    assert done.stderr == "Error: Cluster slipway does not exist: run `./dev up` first\n"


def test_kubectl_without_a_cluster_says_how_to_get_one(tmp_path: Path) -> None:
    done = run_dev(tmp_path, "kubectl", "get", "pods", "--help")

    assert done.returncode == 1
    assert "run `./dev up`" in done.stderr


def test_kubectl_is_given_all_words_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["-n", "a", "exec", "web-pod-0", "--stdin", "--", "ls", "--help"]
    target = Target(Kubectl(Path("/bin/kubectl")), None)
    ran: list[list[str]] = []
    monkeypatch.setattr(cluster_commands, "find_target", lambda *_: target)
    monkeypatch.setattr(os, "execv", lambda _path, command: ran.append(command))

    CliRunner().invoke(app, ["kubectl", *words], catch_exceptions=False)

    assert ran[0][-len(words) :] == words


def test_debug_variable_shows_the_traceback(tmp_path: Path) -> None:
    done = run_dev(tmp_path, "kubeconfig", SLIPWAY_DEBUG="1")

    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_unknown_operator_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    done = run_dev(tmp_path, "install", "nosuch")

    assert done.returncode == 1
    assert "There is no operator 'nosuch'" in done.stderr


def test_operator_tells_its_settings_without_a_cluster(tmp_path: Path) -> None:
    done = run_dev(tmp_path, "run", "podset", "--", "--help")

    assert done.returncode == 0
    assert "PODSET_DEFAULT_IMAGE" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("bench", "volumes"), "No benchmark named 'volumes': choose one of compute, ipam,"),
        # A module of tools/bench that is no benchmark.
        (("bench", "page"), "No benchmark named 'page'"),
        (("demo", "compute"), "compute: nothing to show on a bare cluster"),
        (("demo", "cloud", "--all"), "demo cloud runs alone"),
        (("kubeconfig", "--name", "other"), "run `./dev up --name other` first"),
        # An image need not have a tag, and an operator has no slash.
        (("load", "shop/app"), "Cluster slipway does not exist"),
        # Names are parts of paths that are removed.
        (("down", "--name", ".."), "A cluster cannot be named '..'"),
        (("down", "--name", ""), "A cluster cannot be named ''"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))

    assert run(lambda: app(list(arguments), prog_name="./dev")) == 1
    assert told in capsys.readouterr().err


def test_benchmarks_are_listed() -> None:
    assert "podset" in CliRunner().invoke(app, ["bench", "--help"]).output


def test_local_process_elects_nobody_and_watches_one_namespace() -> None:
    target = Target(Kubectl(Path("k"), Path("/config"), None), None)
    settings = build_local_settings("podset", "team", target)

    assert settings["PODSET_LEADER_ELECT"] == "false"
    assert settings["PODSET_LOG_FORMAT"] == "console"
    assert settings["PODSET_WATCH_NAMESPACES"] == settings["POD_NAMESPACE"] == "team"
    assert settings["PODSET_KUBECONFIG"] == "/config"
    assert "PODSET_CONTEXT" not in settings

"""The command line: its commands, options and errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tools.cluster.command_line import run
from tools.cluster.kubectl import Kubectl
from tools.cluster.versions import KUBERNETES
from tools.dev import cluster_commands
from tools.dev.app import app
from tools.dev.operator_commands import build_local_settings
from tools.dev.operators import ROOT
from tools.dev.options import Target

COMMANDS = [
    *("demo", "up", "down", "status", "kubeconfig", "kubectl", "kubevirt-sim", "guest-image"),
    *("load", "install", "uninstall", "logs", "run"),
    *("test", "generate", "release", "bench", "sweep", "doctor", "completion"),
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


@pytest.mark.parametrize("command", ["demo", "up", "install", "logs", "status", "completion"])
def test_help_names_values_and_shows_none_for_flags(command: str) -> None:
    output = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "120"}).output

    assert re.search(r"<[a-z]", output) is None
    if command != "completion":
        assert re.search(r"--name +NAME ", output)


def test_error_is_one_line_and_a_status(tmp_path: Path) -> None:
    done = run_dev(tmp_path, "kubeconfig")

    assert done.returncode == 1
    assert done.stderr == "Error: Cluster slipway does not exist: run `./dev up` first\n"


def test_kubectl_without_a_cluster_says_how_to_get_one(tmp_path: Path) -> None:
    done = run_dev(tmp_path, "kubectl", "get", "pods", "--help")

    assert done.returncode == 1
    assert "run `./dev up`" in done.stderr


def test_variable_selects_the_cluster_of_all_commands(tmp_path: Path) -> None:
    for words in (["kubectl", "get", "pods"], ["kubeconfig"], ["logs", "podset"]):
        done = run_dev(tmp_path, *words, SLIPWAY_CLUSTER="other")

        assert done.returncode == 1
        assert "Cluster other does not exist: run `./dev up --name other`" in done.stderr


def test_kubectl_is_given_all_words_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["-n", "a", "exec", "web-pod-0", "--stdin", "--", "ls", "--help"]
    target = Target(Kubectl(Path("/bin/kubectl")), None)
    ran: list[list[str]] = []
    monkeypatch.setattr(cluster_commands, "find_target", lambda *_, **__: target)
    monkeypatch.setattr(os, "execve", lambda _path, command, _env: ran.append(command))

    CliRunner().invoke(app, ["kubectl", *words], catch_exceptions=False)

    assert ran[0][-len(words) :] == words


def test_debug_variable_shows_the_traceback(tmp_path: Path) -> None:
    done = run_dev(tmp_path, "kubeconfig", SLIPWAY_DEBUG="1")

    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_unknown_operator_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    done = run_dev(tmp_path, "install", "nosuch")

    assert done.returncode == 2
    assert "There is no operator 'nosuch'" in done.stderr


def test_operator_tells_its_settings_without_a_cluster(tmp_path: Path) -> None:
    done = run_dev(tmp_path, "run", "podset", "--", "--help")

    assert done.returncode == 0
    assert "PODSET_DEFAULT_IMAGE" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "messages"),
    [
        (("demo", "compute"), 1, "compute: nothing to show on a bare cluster"),
        (("demo", "cloud", "--all"), 2, "demo cloud runs alone"),
        (("demo", "--monitoring", "--context", "mine"), 2, "--monitoring needs the kind cluster"),
        (("up", "--kubevirt-from", "."), 2, "--kubevirt-from requires --with kubevirt"),
        (("run", "nosuch"), 2, "There is no operator 'nosuch'"),
        (("kubeconfig", "--name", "other"), 1, "run `./dev up --name other` first"),
        # An image need not have a tag, and an operator has no slash.
        (("load", "shop/app"), 1, "Cluster slipway does not exist"),
        # Names are parts of paths that are removed.
        (("down", "--name", ".."), 2, "A cluster cannot be named '..'"),
        (("down", "--name", ""), 2, "A cluster cannot be named ''"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    messages: str,
) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))

    assert run(lambda: app(list(arguments), prog_name="./dev")) == code
    assert messages in capsys.readouterr().err


@pytest.mark.parametrize("module", ["lab.bench", "lab.sweep", "tools.release", "tools.gate"])
def test_commands_of_other_packages_have_the_same_help_and_errors(module: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    command = [sys.executable, "-m", module]
    shown = subprocess.run(
        [*command, "--help"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    wrong = subprocess.run(
        [*command, "--nosuch"], env=environment, capture_output=True, text=True, check=False
    )

    assert shown.splitlines()[1].startswith(" Usage: ./dev ")
    assert "╭─ Options ─" in shown
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("Error: ")
    assert "--help`" in wrong.stderr


def test_status_is_a_table_or_json(tmp_path: Path) -> None:
    done = run_dev(tmp_path, "status", "--output", "json")
    rows = {row["part"]: row for row in json.loads(done.stdout)}

    assert done.returncode == 0
    assert rows["cluster"]["ok"] is None
    assert rows["cluster"]["detail"] == "does not exist: run ./dev up"
    assert "does not exist: run ./dev up" in run_dev(tmp_path, "status").stdout


def test_doctor_examines_without_creating_anything(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    done = run_dev(cache, "doctor", "-o", "json")
    found = {finding["what"]: finding for finding in json.loads(done.stdout)}
    failed = [what for what, finding in found.items() if finding["ok"] is False]

    assert {"docker", "disk", "memory", "node image", "base image"} <= found.keys()
    assert done.returncode == (1 if failed else 0)
    assert all(what in done.stderr for what in failed)
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_version_names_the_commit_and_kubernetes(tmp_path: Path) -> None:
    done = run_dev(tmp_path, "--version")

    assert done.returncode == 0
    assert done.stdout.startswith("slipway ")
    assert f"Kubernetes {KUBERNETES}" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_for_the_name_that_people_type(tmp_path: Path, shell: str) -> None:
    assert "./dev" in run_dev(tmp_path, "completion", shell).stdout


def test_shell_completes_commands_and_options(tmp_path: Path) -> None:
    ask = {"_SLIPWAY_DEV_COMPLETE": "complete_bash", "COMP_CWORD": "1"}

    assert run_dev(tmp_path, **ask, COMP_WORDS="./dev ins").stdout.split() == ["install"]
    ask["COMP_CWORD"] = "2"
    assert "--workers" in run_dev(tmp_path, **ask, COMP_WORDS="./dev up --w").stdout.split()


@pytest.mark.parametrize("name", ["volumes", "report", "library_rest"])
def test_only_benchmarks_can_be_run(name: str) -> None:
    """An operator may have none, and other modules of lab/bench are none."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "lab.bench", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert f"invalid choice: '{name}' (choose from 'jmxexporter', 'podset'," in done.stderr


def test_local_process_elects_nobody_and_watches_one_namespace() -> None:
    target = Target(Kubectl(Path("k"), Path("/config"), None), None)
    settings = build_local_settings("podset", "team", target)

    assert settings["PODSET_LEADER_ELECT"] == "false"
    assert settings["PODSET_LOG_FORMAT"] == "console"
    assert settings["PODSET_WATCH_NAMESPACES"] == settings["POD_NAMESPACE"] == "team"
    assert settings["PODSET_KUBECONFIG"] == "/config"
    assert "PODSET_CONTEXT" not in settings

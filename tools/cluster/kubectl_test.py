"""kubectl: what it says of a server that cannot be used."""

from __future__ import annotations

from pathlib import Path

from tools.cluster.kubectl import Kubectl


def write_kubectl(path: Path, script: str) -> Kubectl:
    binary = path / "kubectl"
    binary.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    binary.chmod(0o755)
    return Kubectl(binary)


def test_server_that_is_ready_has_no_problem(tmp_path: Path) -> None:
    kubectl = write_kubectl(tmp_path, "echo ok")

    assert kubectl.find_problem() is None
    assert kubectl.answers()


def test_problem_is_told_in_the_last_words_of_kubectl(tmp_path: Path) -> None:
    script = """echo 'E1122 some noise' >&2; echo 'error: context "a" does not exist' >&2; exit 1"""
    kubectl = write_kubectl(tmp_path, script)

    assert kubectl.find_problem() == 'context "a" does not exist'
    assert not kubectl.answers()


def test_kubectl_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    problem = Kubectl(tmp_path / "none").find_problem()

    assert problem is not None and "not installed" in problem

"""The steps of the gate, in the order in which they fail fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
REPORTS: Final = Path("dist/gate")
PANTS_REPORTS: Final = Path("dist/test/reports")

CHART_TESTS: Final = ("helm", "deploy", "docs")
TOOL_TESTS: Final = ("tools", "tests/security", "tests/interplay")
"""Tests that read the whole checkout, and so run on it rather than in a sandbox of Pants."""

END_TO_END_TESTS: Final = "tests/e2e"
CLOUD_TESTS: Final = f"{END_TO_END_TESTS}/cloud"
"""Tests of the operators that make a cloud of simulated machines; no other test installs these."""

BROKER_TESTS: Final = ("operators/pulsarconsumer",)
"""Where tests are that run processes of the checkout against a real broker."""


@dataclass(frozen=True, slots=True)
class Step:
    """Declare one step.

    Attributes:
        name: Word for `--only` and `--skip`.
        title: What people read.
        command: What runs, from the root of the checkout.
        reports: JUnit reports that it writes; empty for a step that is one check by itself.
        environment: Set on top of that of the gate.
        needs: Tools that are made before it: `assets`, `helm`, `jvm`, `pulsar`, `images`,
            `cluster`.
        beside: Runs beside the steps after it: it waits more than it computes, or has but one
            process.
    """

    name: str
    title: str
    command: tuple[str, ...]
    reports: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    beside: bool = False


def build_steps(python: str) -> tuple[Step, ...]:
    """Build the steps.

    Args:
        python: Interpreter with the locked packages, which is the one that runs the gate.
    """
    return (
        # Beside the static checks, of which each has but one process.
        Step(
            "charts",
            "Charts, kustomize and docs",
            _pytest(python, "charts", *CHART_TESTS),
            reports=f"{REPORTS}/charts.xml",
            needs=("assets", "helm"),
            beside=True,
        ),
        Step(
            "broker",
            "Consumers of a real Pulsar broker",
            (*_pytest(python, "broker", *BROKER_TESTS), "-o", "python_files=*_broker_test.py"),
            reports=f"{REPORTS}/broker.xml",
            needs=("pulsar",),
            beside=True,
        ),
        Step(
            "generated",
            "Generated files match their sources",
            (python, "-m", "tools.generate", "--check"),
            needs=("helm",),
        ),
        Step("lock", "Lockfile matches the requirements", (python, "-m", "tools.lock", "--check")),
        Step(
            "build-files",
            "BUILD files are complete and formatted",
            ("./pants", "tailor", "--check", "update-build-files", "--check", "::"),
        ),
        # The only goal of this Pants that checks visibility.
        Step("visibility", "Operators import no other operator", ("./pants", "dependencies", "::")),
        Step("lint", "Lint, format and types", ("./pants", "lint", "check", "::")),
        Step("layers", "Layers inside packages", (python, "-m", "tools.gate.imports")),
        # Two processes, which share the cluster but no operator: both wait more than they compute.
        _build_end_to_end(
            python, "e2e", "End to end on kind", END_TO_END_TESTS, f"--ignore={CLOUD_TESTS}"
        ),
        _build_end_to_end(python, "e2e-cloud", "End to end on kind, the cloud", CLOUD_TESTS),
        Step(
            "unit",
            "Unit and integration tests, real API server",
            ("./pants", "test", "::"),
            reports=f"{PANTS_REPORTS}/*.xml",
            needs=("assets", "jvm"),
        ),
        Step(
            "tools",
            "Tools, security, and operators together",
            _pytest(python, "tools", *TOOL_TESTS),
            reports=f"{REPORTS}/tools.xml",
            needs=("assets", "helm"),
        ),
        Step(
            "sweep",
            "Faults of each mode for each operator, real API server",
            (python, "-m", "tools.sweep", f"--junit={REPORTS}/sweep.xml"),
            reports=f"{REPORTS}/sweep.xml",
            needs=("assets",),
        ),
    )


def _build_end_to_end(python: str, name: str, title: str, *tests: str) -> Step:
    return Step(
        name,
        title,
        # A line for each test: they take long, and the log is where one looks meanwhile.
        (*_pytest(python, name, *tests), "-vv"),
        reports=f"{REPORTS}/{name}.xml",
        needs=("helm", "images", "cluster"),
        beside=True,
    )


def _pytest(python: str, name: str, *paths: str) -> tuple[str, ...]:
    return (python, "-m", "pytest", *paths, "-q", f"--junit-xml={REPORTS}/{name}.xml")

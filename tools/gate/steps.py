"""The steps of the gate, in the order in which they fail fastest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
REPORTS: Final = Path("dist/gate")
PANTS_REPORTS: Final = Path("dist/test/reports")

CHART_TESTS: Final = ("helm", "deploy", "docs")
TOOL_TESTS: Final = ("tools", "tests/security", "tests/interplay")
"""Tests that read the whole checkout, so they run there and not in a sandbox of Pants."""

END_TO_END_TESTS: Final = "tests/e2e"
CLOUD_TESTS: Final = f"{END_TO_END_TESTS}/cloud"
"""Tests of the cloud operators on simulated machines; no other test installs these operators."""

KUBEVIRT_TESTS: Final = f"{END_TO_END_TESTS}/kubevirt"
"""Tests that need the real KubeVirt and are therefore not part of the gate."""

NIGHTLY_TESTS: Final = f"{END_TO_END_TESTS}/nightly"
"""Tests on nodes that take too long for the gate."""

NODE_UPGRADE_TESTS: Final = f"{NIGHTLY_TESTS}/upgrade_test.py"
"""Tests of upgrades on nodes."""

FORMED_CLUSTER_TESTS: Final = f"{KUBEVIRT_TESTS}/cluster_test.py"
"""Tests in which kubeadm runs in guests; up to an hour under software emulation."""

NAMESPACE_TESTS: Final = "tests/namespaces"
"""Tests with the real namespace controller, which waits most of the time."""

OVERLOAD_TESTS: Final = "tests/overload"
"""Tests of operators with very little CPU time; they need permission to create control groups."""

KEDA_TESTS: Final = "tests/keda"
"""Tests with KEDA, a broker and a control plane, which wait most of the time. They are skipped if
KEDA is not built, which takes long."""

UPGRADE_TESTS: Final = "tests/upgrade"
"""Tests that run the previous release and this one."""
_CLOUD_OPERATORS: Final = "clusters or compute or ipam or network"
"""Expression of pytest for one half of these tests."""

BROKER_TESTS: Final = ("operators/pulsarconsumer",)
"""Directories of tests that run processes of the checkout against a real broker."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the gate.

    Attributes:
        name: Name for `--only` and `--skip`.
        title: Title shown to the user.
        command: Command to run in the root of the checkout.
        reports: JUnit reports that the step writes; empty if the step is a single check.
        environment: Variables added to the environment of the gate.
        needs: Prerequisites to prepare: `assets`, `helm`, `jvm`, `pulsar`, `images`,
            `cluster`.
        in_background: Whether later steps run at the same time, because it mostly waits or uses
            one process.
        optional: Whether it runs only if `--only` names it.
    """

    name: str
    title: str
    command: tuple[str, ...]
    reports: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    in_background: bool = False
    optional: bool = False


def build_steps(python: str) -> tuple[Step, ...]:
    """Build the steps.

    Args:
        python: Interpreter with the locked packages, which runs the gate.
    """
    return (
        # In the background of the static checks, each of which has only one process.
        Step(
            "charts",
            "Charts, kustomize and docs",
            _pytest(python, "charts", *CHART_TESTS),
            reports=f"{REPORTS}/charts.xml",
            needs=("assets", "helm", "prometheus"),
            in_background=True,
        ),
        Step(
            "broker",
            "Consumers of a real Pulsar broker",
            (*_pytest(python, "broker", *BROKER_TESTS), "-o", "python_files=*_broker_test.py"),
            reports=f"{REPORTS}/broker.xml",
            needs=("pulsar",),
            in_background=True,
        ),
        Step(
            "generated",
            "Generated files match their sources",
            (python, "-m", "tools.generate", "--check"),
            needs=("helm",),
        ),
        Step(
            "build-files",
            "BUILD files are complete and formatted",
            ("./pants", "tailor", "--check", "update-build-files", "--check", "::"),
        ),
        # The only goal of this Pants that checks visibility.
        Step("visibility", "Operators import no other operator", ("./pants", "dependencies", "::")),
        Step("lint", "Lint, format and types", ("./pants", "lint", "check", "::")),
        Step("layers", "Layers inside packages", (python, "-m", "tools.gate.imports")),
        # Two processes that share the cluster but no operator. Both mostly wait.
        _build_end_to_end(
            python,
            "e2e",
            "End to end on kind",
            END_TO_END_TESTS,
            f"--ignore={CLOUD_TESTS}",
            f"--ignore={KUBEVIRT_TESTS}",
            f"--ignore={NIGHTLY_TESTS}",
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
            "namespaces",
            "Namespaces that are deleted or unreadable, and a lack of CPU time, real control plane",
            _pytest(python, "namespaces", NAMESPACE_TESTS, OVERLOAD_TESTS),
            reports=f"{REPORTS}/namespaces.xml",
            needs=("assets", "helm"),
            in_background=True,
        ),
        Step(
            "keda",
            "Scaling by KEDA, real KEDA and broker (skipped if KEDA is not built)",
            _pytest(python, "keda", KEDA_TESTS, "-rs"),
            reports=f"{REPORTS}/keda.xml",
            needs=("assets", "pulsar"),
            in_background=True,
        ),
        # Two processes, as above.
        _build_upgrade(
            python, "upgrade", "Upgrade and roll back, real API server", f"not ({_CLOUD_OPERATORS})"
        ),
        _build_upgrade(
            python,
            "upgrade-cloud",
            "Upgrade and roll back, real API server, the cloud",
            _CLOUD_OPERATORS,
        ),
        Step(
            "sweep",
            "Faults of each mode for each operator, real API server",
            (python, "-m", "tools.sweep", f"--junit={REPORTS}/sweep.xml"),
            reports=f"{REPORTS}/sweep.xml",
            needs=("assets",),
        ),
        Step(
            "e2e-nightly",
            "All charts as one, Argo CD and Flux, on kind (only if named)",
            (
                *_pytest(python, "e2e-nightly", NIGHTLY_TESTS),
                f"--ignore={NODE_UPGRADE_TESTS}",
                "-vv",
                "--durations=0",
            ),
            reports=f"{REPORTS}/e2e-nightly.xml",
            needs=("helm", "images", "cluster"),
            optional=True,
        ),
        Step(
            "e2e-upgrade",
            "Upgrade and roll back all operators on kind (only if named)",
            (*_pytest(python, "e2e-upgrade", NODE_UPGRADE_TESTS), "-vv", "--durations=0"),
            reports=f"{REPORTS}/e2e-upgrade.xml",
            needs=("helm", "images", "cluster"),
            optional=True,
        ),
        # A cluster with the real KubeVirt is created manually: it needs images or a registry.
        Step(
            "e2e-kubevirt",
            "End to end on the real KubeVirt (only if named)",
            (
                *_pytest(python, "e2e-kubevirt", KUBEVIRT_TESTS),
                f"--ignore={FORMED_CLUSTER_TESTS}",
                "-vv",
                "--durations=0",
            ),
            reports=f"{REPORTS}/e2e-kubevirt.xml",
            environment={"SLIPWAY_E2E_TIMEOUT": "300"},
            needs=("helm",),
            optional=True,
        ),
        Step(
            "e2e-kubevirt-full",
            "A Kubernetes cluster of guests on the real KubeVirt (only if named)",
            (*_pytest(python, "e2e-kubevirt-full", FORMED_CLUSTER_TESTS), "-vv", "--durations=0"),
            reports=f"{REPORTS}/e2e-kubevirt-full.xml",
            environment={"SLIPWAY_E2E_TIMEOUT": "300"},
            needs=("helm",),
            optional=True,
        ),
    )


def choose_steps(
    steps: Sequence[Step], only: Collection[str] = (), skip: Collection[str] = ()
) -> list[Step]:
    """Return the steps to run, in their order; optional ones run only if they are named."""
    named = [step for step in steps if (step.name in only if only else not step.optional)]
    return [step for step in named if step.name not in skip]


def _build_end_to_end(python: str, name: str, title: str, *tests: str) -> Step:
    return Step(
        name,
        title,
        # One line per test, because the tests take long and the log shows their progress.
        (*_pytest(python, name, *tests), "-vv"),
        reports=f"{REPORTS}/{name}.xml",
        needs=("helm", "images", "cluster"),
        in_background=True,
    )


def _build_upgrade(python: str, name: str, title: str, operators: str) -> Step:
    return Step(
        name,
        title,
        (*_pytest(python, name, UPGRADE_TESTS), "-k", operators),
        reports=f"{REPORTS}/{name}.xml",
        needs=("assets", "helm"),
        in_background=True,
    )


def _pytest(python: str, name: str, *paths: str) -> tuple[str, ...]:
    return (python, "-m", "pytest", *paths, "-q", f"--junit-xml={REPORTS}/{name}.xml")

"""The steps of the gate, in the order in which they fail fastest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
REPORTS: Final = Path("dist/gate")

PRODUCT_TESTS: Final = ("libs", "kubectl_slipway", "slipway_handler", "operators")
WHOLE_TESTS: Final = ("tools", "lab", "tests/security", "tests/interplay")
"""Tests of the tools, the laboratory, and operators together."""

FUZZ_TESTS: Final = "lab/fuzz"
"""Tests of each value of each field of each kind."""

CHART_TESTS: Final = ("helm", "deploy", "docs")

END_TO_END_TESTS: Final = "tests/e2e"
CLOUD_TESTS: Final = f"{END_TO_END_TESTS}/cloud"
"""Tests of the cloud operators on simulated machines; no other test installs these operators."""

KUBEVIRT_TESTS: Final = f"{END_TO_END_TESTS}/kubevirt"
"""Tests that need the real KubeVirt, whose cluster is created manually."""

NIGHTLY_TESTS: Final = f"{END_TO_END_TESTS}/nightly"
"""Tests of all charts as one, GitOps tools and upgrades on nodes."""

NODE_UPGRADE_TESTS: Final = f"{NIGHTLY_TESTS}/upgrade_test.py"
FORMED_CLUSTER_TESTS: Final = f"{KUBEVIRT_TESTS}/cluster_test.py"
"""Tests in which kubeadm runs in guests; up to an hour under software emulation."""

NAMESPACE_TESTS: Final = "tests/namespaces"
"""Tests with the real namespace controller, which waits most of the time."""

OVERLOAD_TESTS: Final = "tests/overload"
"""Tests of operators with very little CPU time; they need permission to create control groups."""

BROKER_TESTS: Final = "*_broker_test.py"
"""Tests with a real Pulsar broker."""

KEDA_TESTS: Final = "tests/keda"
"""Tests with KEDA, a broker and a control plane. They are skipped if KEDA is not built."""

UPGRADE_TESTS: Final = "tests/upgrade"
"""Tests that run the previous release and this one."""
_CLOUD_OPERATORS: Final = "clusters or compute or ipam or network"
"""Expression of pytest for one half of these tests."""


class Scope(StrEnum):
    """When a step runs."""

    ALWAYS = "always"
    ALL = "all"
    """With `--all`, which runs every night and before a release."""
    NAMED = "named"
    """Only if `--only` names it: it needs a cluster that is created manually."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the gate.

    Attributes:
        name: Name for `--only` and `--skip`.
        title: Title shown to the user.
        command: Command to run in the root of the checkout.
        reports: JUnit reports that the step writes; empty if the step is a single check.
        environment: Variables added to the environment of the gate.
        needs: Prerequisites to prepare: `assets`, `helm`, `prometheus`, `jvm`, `pulsar`,
            `images`, `cluster`.
        in_background: Whether later steps run at the same time, because it mostly waits.
        scope: When the step runs.
    """

    name: str
    title: str
    command: tuple[str, ...]
    reports: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    in_background: bool = False
    scope: Scope = Scope.ALWAYS


def build_steps(python: str) -> tuple[Step, ...]:
    """Build the steps.

    Args:
        python: Interpreter with the locked packages, which runs the gate.
    """
    kind = ("helm", "images", "cluster")
    return (
        # Mostly waits for nodes and pods. On a new machine it compiles what a cluster needs, while
        # the tests that need nothing of that run.
        _tests(
            python,
            "e2e",
            "End to end on kind",
            (
                END_TO_END_TESTS,
                *(f"--ignore={each}" for each in (CLOUD_TESTS, KUBEVIRT_TESTS, NIGHTLY_TESTS)),
                "-vv",
            ),
            needs=kind,
            in_background=True,
        ),
        Step("lint", "Format and lint", (python, "-m", "tools.gate.lint")),
        Step("layers", "Layers inside packages", (python, "-m", "tools.gate.imports")),
        Step("size", "Size is within the budgets", (python, "-m", "tools.gate.size")),
        Step("types", "Types", (python, "-m", "mypy", "."), in_background=True),
        _tests(
            python,
            "unit",
            "Unit tests",
            (
                *PRODUCT_TESTS,
                *("-m", "not apiserver and not other_java"),
                f"--ignore-glob={BROKER_TESTS}",
            ),
            needs=("jvm",),
            parallel=True,
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
        _tests(
            python,
            "integration",
            "Tests on a real API server",
            (*PRODUCT_TESTS, "-m", "apiserver"),
            needs=("assets",),
            parallel=True,
        ),
        _tests(
            python,
            "charts",
            "Charts, kustomize and docs",
            CHART_TESTS,
            needs=("assets", "helm", "prometheus"),
            parallel=True,
        ),
        _tests(
            python, "security", "Attacks by tenants", ("tests/attacks",), needs=("assets", "helm")
        ),
        _tests(
            python,
            "tools",
            "Tools, security, and operators together",
            (*WHOLE_TESTS, f"--ignore={FUZZ_TESTS}"),
            needs=("assets", "helm"),
            parallel=True,
        ),
        Step(
            "sweep",
            "Faults of each mode for each operator, real API server",
            (python, "-m", "lab.sweep", f"--junit={REPORTS}/sweep.xml"),
            reports=f"{REPORTS}/sweep.xml",
            needs=("assets",),
        ),
        _tests(
            python,
            "fuzz",
            "Each value of each field",
            (FUZZ_TESTS,),
            needs=("assets", "helm"),
            parallel=True,
            scope=Scope.ALL,
        ),
        _tests(
            python,
            "java",
            "Each other Java",
            ("operators/jmxexporter", "-m", "other_java"),
            needs=("jvm",),
            parallel=True,
            scope=Scope.ALL,
        ),
        _tests(
            python,
            "broker",
            "Consumers of a real Pulsar broker",
            ("operators/pulsarconsumer", "-o", f"python_files={BROKER_TESTS}"),
            needs=("pulsar",),
            scope=Scope.ALL,
        ),
        _tests(
            python,
            "e2e-cloud",
            "End to end on kind, the cloud",
            (CLOUD_TESTS, "-vv"),
            needs=kind,
            in_background=True,
            scope=Scope.ALL,
        ),
        _tests(
            python,
            "namespaces",
            "Namespaces that are deleted or unreadable, and a lack of CPU time",
            (NAMESPACE_TESTS, OVERLOAD_TESTS),
            needs=("assets", "helm"),
            scope=Scope.ALL,
        ),
        _tests(
            python,
            "keda",
            "Scaling by KEDA, real KEDA and broker (skipped if KEDA is not built)",
            (KEDA_TESTS, "-rs"),
            needs=("assets", "pulsar"),
            scope=Scope.ALL,
        ),
        # Two processes, because each mostly waits.
        _tests(
            python,
            "upgrade",
            "Upgrade and roll back, real API server",
            (UPGRADE_TESTS, "-k", f"not ({_CLOUD_OPERATORS})"),
            needs=("assets", "helm"),
            in_background=True,
            scope=Scope.ALL,
        ),
        _tests(
            python,
            "upgrade-cloud",
            "Upgrade and roll back, real API server, the cloud",
            (UPGRADE_TESTS, "-k", _CLOUD_OPERATORS),
            needs=("assets", "helm"),
            scope=Scope.ALL,
        ),
        _tests(
            python,
            "e2e-nightly",
            "All charts as one, Argo CD and Flux, on kind",
            (NIGHTLY_TESTS, f"--ignore={NODE_UPGRADE_TESTS}", "-vv", "--durations=0"),
            needs=kind,
            scope=Scope.ALL,
        ),
        _tests(
            python,
            "e2e-upgrade",
            "Upgrade and roll back all operators on kind",
            (NODE_UPGRADE_TESTS, "-vv", "--durations=0"),
            needs=kind,
            scope=Scope.ALL,
        ),
        _tests(
            python,
            "e2e-kubevirt",
            "End to end on the real KubeVirt",
            (KUBEVIRT_TESTS, f"--ignore={FORMED_CLUSTER_TESTS}", "-vv", "--durations=0"),
            environment={"SLIPWAY_E2E_TIMEOUT": "300"},
            needs=("helm",),
            scope=Scope.NAMED,
        ),
        _tests(
            python,
            "e2e-kubevirt-full",
            "A Kubernetes cluster of guests on the real KubeVirt",
            (FORMED_CLUSTER_TESTS, "-vv", "--durations=0"),
            environment={"SLIPWAY_E2E_TIMEOUT": "300"},
            needs=("helm",),
            scope=Scope.NAMED,
        ),
    )


def choose_steps(
    steps: Sequence[Step],
    only: Collection[str] = (),
    skip: Collection[str] = (),
    *,
    everything: bool = False,
) -> list[Step]:
    """Return the steps to run, in their order.

    Args:
        steps: All steps.
        only: Names of the steps to run; empty for those of the scope.
        skip: Names of steps to leave out.
        everything: Whether to run the steps of the scope `all` as well.
    """
    scopes = {Scope.ALWAYS, Scope.ALL} if everything else {Scope.ALWAYS}
    named = [step for step in steps if (step.name in only if only else step.scope in scopes)]
    return [step for step in named if step.name not in skip]


def _tests(
    python: str,
    name: str,
    title: str,
    arguments: Sequence[str],
    *,
    needs: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    in_background: bool = False,
    parallel: bool = False,
    scope: Scope = Scope.ALWAYS,
) -> Step:
    """Build a step that runs pytest; `parallel` uses more processes than cores."""
    report = f"{REPORTS}/{name}.xml"
    options = ("--parallel",) if parallel else ()
    return Step(
        name,
        title,
        (python, "-m", "tools.gate.tests", report, *options, "--", *arguments),
        reports=report,
        environment=environment or {},
        needs=needs,
        in_background=in_background,
        scope=scope,
    )

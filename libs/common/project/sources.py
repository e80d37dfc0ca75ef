"""The declarations of an operator from which files are generated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from libs.common.crd import CustomResource
from libs.common.kinds import Manifest
from libs.common.metric_specs import MetricSpec
from libs.common.rbac import PolicyRule
from libs.common.settings import CommonSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSource:
    """The declarations of an operator.

    Attributes:
        resources: Models of its kinds, in every version.
        rules: Permissions that it needs.
        metrics: Its own metrics, without the metrics of the framework.
        webhooks: Its webhooks, as entries of `files/webhooks.yaml`.
        code: Folder of its code, relative to the root of the project.
        chart: Folder of its chart, relative to the root of the project.
        generator: Name of the generator, for the notice in each generated file.
        summary: Purpose of the operator, in one sentence.
        all_namespaces: Whether its chart watches all namespaces by default.
        modules: Files that declare the `api`, the `metrics`, the `rules` and the `settings`,
            relative to the code. What is not named here is declared by `controller.py`.
    """

    id: str
    resources: tuple[type[CustomResource], ...]
    rules: tuple[PolicyRule, ...]
    settings: type[CommonSettings]
    metrics: tuple[MetricSpec, ...] = ()
    webhooks: tuple[Manifest, ...] = ()
    code: Path
    chart: Path
    generator: str
    summary: str = ""
    all_namespaces: bool = False
    modules: Mapping[str, str] = field(default_factory=dict)

    def path_of(self, part: str) -> str:
        """Return the path of the file that declares a part, relative to the root of the project."""
        return (self.code / self.modules.get(part, "controller.py")).as_posix()

    def origin(self, *sources: str) -> str:
        """Return the origin that a generated file names.

        Args:
            sources: Paths relative to the root of the project.
        """
        return f"{self.generator} from {' and '.join(sources)}"

    def kinds(self) -> dict[tuple[str, str], list[type[CustomResource]]]:
        """Return the models by group and kind, with versions in the order of their declaration."""
        kinds: dict[tuple[str, str], list[type[CustomResource]]] = {}
        for model in self.resources:
            kind = model.crd_meta.kind
            kinds.setdefault((kind.group, kind.kind), []).append(model)
        return kinds

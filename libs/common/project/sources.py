"""The declarations of an operator from which files are generated."""

from __future__ import annotations

from dataclasses import dataclass
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
        id: Id of the operator.
        resources: Models of its kinds, in every version.
        rules: Permissions that it needs.
        settings: Its settings.
        metrics: Its own metrics, without the metrics of the framework.
        webhooks: Its webhooks, as entries of `files/webhooks.yaml`.
        code: Folder of its code, relative to the root of the project.
        chart: Folder of its chart, relative to the root of the project.
        generator: Name of the generator, for the notice in each generated file.
        rules_module: Module that declares the permissions.
        settings_module: Module that declares the settings.
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
    rules_module: str = "rbac.py"
    settings_module: str = "settings.py"

    def path_of(self, module: str) -> str:
        """Return the path of a module of the operator, relative to the root of the project."""
        return (self.code / module).as_posix()

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

"""Reference tables: conditions, metrics, permissions and settings."""

from __future__ import annotations

from collections.abc import Iterable

from libs.common.metric_specs import FRAMEWORK_METRICS, MetricSpec
from libs.common.project.permissions import cluster_rules, namespaced_rules
from libs.common.project.settings import own_settings, render_default
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_code, render_table
from libs.common.rbac import PolicyRule, operator_namespace_rules, sort_verbs
from libs.common.settings import CommonSettings, SettingSpec, describe_settings
from tools.generate.enums import member_docs


def render_conditions(operator: OperatorSource, *, heading: str = "##") -> str:
    """Render the condition types and reasons of each kind."""
    parts = []
    for models in operator.kinds().values():
        meta = models[0].crd_meta
        parts.append(f"{heading} {meta.kind.kind}")
        for enum, title in ((meta.conditions, "Condition"), (meta.reasons, "Reason")):
            if enum is not None:
                rows = [(render_code(value), text) for value, text in member_docs(enum).items()]
                parts.append(render_table((title, "Meaning"), rows))
    return "\n\n".join(part for part in parts if part)


def render_metrics(operator: OperatorSource) -> str:
    """Render the metrics that only this operator has, and a link to the others."""
    link = "[metrics of every operator](../metrics.md)"
    if not operator.metrics:
        return f"This operator serves only the {link}."
    return f"{render_metrics_table(operator.metrics)}\n\nThe operator also serves the {link}."


def render_framework_metrics() -> str:
    """Render the metrics that every operator has."""
    return render_metrics_table(FRAMEWORK_METRICS)


def render_permissions_tables(operator: OperatorSource) -> str:
    """Render what the operator may do where, and why."""
    places = (
        ("In each watched namespace", namespaced_rules(operator)),
        ("In the whole cluster", cluster_rules(operator)),
        ("In the namespace of the operator", operator_namespace_rules(operator.id)),
    )
    parts = []
    for title, rules in places:
        if rules:
            parts += [f"## {title}", _render_rules(rules)]
    return "\n\n".join(parts)


def render_own_settings(operator: OperatorSource) -> str:
    """Render the settings that only this operator has, and a link to the others."""
    link = "The operator also has the [settings of every operator](../settings.md)."
    return f"{render_settings_table(own_settings(operator))}\n\n{link}"


def render_common_settings() -> str:
    """Render the settings that every operator has."""
    specs = [spec for spec in describe_settings(CommonSettings) if not spec.tuning]
    return render_settings_table(specs).replace("`OPERATOR_", "`<ID>_")


def list_tuning_settings() -> str:
    """List the flags of the settings that the table leaves out."""
    specs = [spec for spec in describe_settings(CommonSettings) if spec.tuning]
    *others, last = (render_code(spec.flag) for spec in specs)
    return f"{', '.join(others)} and {last}"


def render_settings_table(specs: Iterable[SettingSpec]) -> str:
    """Render settings with their flags, variables, defaults and descriptions."""
    rows = [
        (
            render_code(spec.flag),
            ", ".join(render_code(name) for name in spec.environment),
            render_default(spec),
            spec.description,
        )
        for spec in specs
    ]
    return render_table(("Flag", "Environment", "Default", "Description"), rows)


def render_metrics_table(metrics: Iterable[MetricSpec]) -> str:
    """Render metrics, sorted by name."""
    rows = [
        (
            render_code(metric.name),
            metric.kind.value,
            ", ".join(render_code(label) for label in metric.labels),
            metric.help,
        )
        for metric in sorted(metrics, key=lambda metric: metric.name)
    ]
    return render_table(("Metric", "Type", "Labels", "Meaning"), rows)


def _render_rules(rules: Iterable[PolicyRule]) -> str:
    rows = [
        (
            ", ".join(render_code(group) if group else "core" for group in rule.api_groups),
            ", ".join(render_code(resource) for resource in rule.resources)
            + "".join(f" named `{name}`" for name in rule.resource_names),
            ", ".join(sort_verbs(rule.verbs)),
            rule.why,
        )
        for rule in rules
    ]
    return render_table(("API group", "Resources", "Verbs", "Why"), rows)

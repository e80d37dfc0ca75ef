"""Validation of the exporter's configuration, before any pod is changed. Pure: no input or output.

Patterns are regular expressions of Java and cannot be validated here. The guard in the JVM
validates them before it changes anything.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import yaml

from libs.common import fastyaml
from operators.jmxexporter.api.v1alpha1 import ConfigSource, PrometheusJmxExporterSpec
from operators.jmxexporter.presets import PRESETS
from operators.jmxexporter.reasons import Reason

LIMIT: Final = 96 * 1024
"""Most bytes of a configuration: it travels in an environment variable, which has 128 KiB."""

_NAMED: Final = 5
"""Most warnings in a message."""
_KEY_LIMIT: Final = 60
_BOOLEANS: Final = frozenset(
    {
        "lowercaseOutputName",
        "lowercaseOutputLabelNames",
        "inferCounterTypeFromName",
        "excludeJvmMetrics",
        "autoExcludeObjectNameAttributes",
    }
)
_LISTS: Final = frozenset(
    {
        "includeObjectNames",
        "excludeObjectNames",
        "whitelistObjectNames",
        "blacklistObjectNames",
        "metricCustomizers",
        "rules",
    }
)
_OTHER: Final = frozenset({"includeObjectNameAttributes", "excludeObjectNameAttributes"})
_SERVER: Final = frozenset({"httpServer", "openTelemetry"})
_REMOTE: Final = frozenset({"hostPort", "jmxUrl"})
_WITHOUT_EFFECT: Final = {
    "startDelaySeconds": "the endpoint starts when the JVM has been running for a while",
    "scrapeTimeoutSeconds": "a scrape lasts as long as Prometheus waits",
    "ssl": "the exporter reads its own JVM",
    "username": "the exporter reads its own JVM",
    "password": "the exporter reads its own JVM",
}
_RULE: Final = frozenset(
    {
        "pattern",
        "name",
        "value",
        "valueFactor",
        "labels",
        "help",
        "cache",
        "type",
        "attrNameSnakeCase",
    }
)


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration, or the reason why there is none.

    Attributes:
        hash: Its SHA-256, empty for none.
        reason: Why it cannot be used; None when it can.
        message: Explanation of the reason, for people.
        warning: Keys without effect, for people; empty for none.
    """

    text: str = ""
    hash: str = ""
    reason: Reason | None = None
    message: str = ""
    warning: str = ""


def read_config(source: ConfigSource, config_map: Mapping[str, Any] | None) -> Config:
    """Validate the configuration in a ConfigMap, or return the configuration of a preset."""
    if source.preset is not None:
        rules = PRESETS[source.preset]
        return Config(rules, hashlib.sha256(rules.encode()).hexdigest())
    name = f"ConfigMap {source.config_map_name}"
    if config_map is None:
        return Config(reason=Reason.CONFIG_MISSING, message=f"{name} does not exist; create it")
    text = (config_map.get("data") or {}).get(source.config_map_key)
    if not isinstance(text, str):
        message = f"{name} has no key {source.config_map_key}; see spec.config.configMapKey"
        if source.config_map_key in (config_map.get("binaryData") or {}):
            message = f"{name}: {source.config_map_key} is binary data; save it as UTF-8 text"
        return Config(reason=Reason.CONFIG_MISSING, message=message)
    digest = hashlib.sha256(text.encode()).hexdigest()
    problem = find_problem(text)
    if problem:
        message = f"{name}: {source.config_map_key}: {problem}"
        return Config(text, digest, Reason.CONFIG_INVALID, message)
    return Config(text, digest, warning=_examine(text)[1])


def evaluate_patterns(spec: PrometheusJmxExporterSpec, config: Config) -> Config:
    """Return the configuration, or an unusable one if a pattern in the spec is not valid."""
    patterns = {"mainClass": spec.main_class, "excludeMainClass": spec.exclude_main_class}
    for field, pattern in patterns.items():
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            message = f"spec.{field}: not a Python regular expression: {error}"
            return replace(config, reason=Reason.INVALID_SPEC, message=message)
    return config


def find_problem(text: str) -> str:
    """Return why a configuration cannot be used; empty if it can."""
    return _examine(text)[0]


@lru_cache(maxsize=128)
def _examine(text: str) -> tuple[str, str]:
    """Return why a configuration cannot be used, and which of its keys have no effect.

    The exporter of the jmx_exporter project ignores keys that it does not know, so configurations
    in use have such keys.

    Cached: each reconcile calls this twice, and parsing a long configuration blocks the event loop,
    and with it the webhook.
    """
    if len(text.encode()) > LIMIT:
        return f"longer than {LIMIT // 1024} KiB", ""
    try:
        documents = fastyaml.load_untrusted(text)
    except fastyaml.TooLarge as error:
        return str(error), ""
    except yaml.YAMLError as error:
        return f"not YAML: {_describe(error)}", ""
    if len(documents) > 1:
        return f"{len(documents)} documents; write one", ""
    root = documents[0] if documents else {}
    if not isinstance(root, dict):
        return "not a mapping", ""
    rules = root.get("rules") or []
    problem = _find_key_problem(root) or _find_rule_problem(rules)
    return problem, "" if problem else "; ".join(_list_warnings(root, rules)[:_NAMED])


def _list_warnings(root: Mapping[Any, Any], rules: list[Any]) -> list[str]:
    known = _BOOLEANS | _LISTS | _OTHER
    found = [
        (
            f"{key} has no effect: {_WITHOUT_EFFECT[key]}"
            if key in _WITHOUT_EFFECT
            else f"{str(key)[:_KEY_LIMIT]} is unknown and has no effect"
        )
        for key in root
        if key not in known
    ]
    found += [
        f"rules[{index}].{str(key)[:_KEY_LIMIT]} is unknown and has no effect"
        for index, rule in enumerate(rules)
        for key in rule
        if key not in _RULE
    ]
    return found


def _describe(error: yaml.YAMLError) -> str:
    """Describe a syntax error without the text around it, which may contain a password.

    The description is shown in the status, to people who may not have the right to read ConfigMaps.
    """
    if isinstance(error, yaml.reader.ReaderError):
        return "it contains a control character"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return "a value does not fit its tag"
    mark = error.problem_mark
    # Remove text that the parser quotes from the configuration, such as an unexpected token.
    problem = re.sub(r"'[^']*'", "...", error.problem or "syntax error")
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _find_key_problem(root: Mapping[Any, Any]) -> str:
    for key, value in root.items():
        if key in _REMOTE:
            return f"{key} is for another JVM; an injected exporter reads its own"
        if key in _SERVER:
            return f"{key} is not supported; the endpoint is set up by the resource"
        if key in _BOOLEANS and not isinstance(value, bool):
            return f"{key} must be true or false"
        if key in _LISTS and not isinstance(value, list):
            return f"{key} must be a list"
    return ""


def _find_rule_problem(rules: list[Any]) -> str:
    for index, rule in enumerate(rules):
        where = f"rules[{index}]"
        if not isinstance(rule, dict):
            return f"{where} must be a mapping"
        if "pattern" not in rule and {"name", "labels", "value", "help"} & set(rule):
            return f"{where} needs a pattern"
        if "labels" in rule and "name" not in rule:
            return f"{where}: labels need a name"
    return ""

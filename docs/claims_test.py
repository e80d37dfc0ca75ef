"""What the pages say of the code is so: names, fields, values, variables, modules, options."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest
import yaml

from docs.docs_test import DOCS, PAGES, ROOT, name_of, prose_of
from libs.common.project.create import PACKAGE
from libs.common.testing.fakeapi.refusals_test import NOT_REFUSED
from tools.cluster.versions import KUBERNETES, TOOL_MODULES
from tools.dev.operators import list_operators

WRITTEN: Final = [page for page in PAGES if page.parent.parent != DOCS / "reference"]
"""Pages that people write; what is generated comes from the code."""
_SPAN: Final = re.compile(r"`([^`\n]+)`")
_SOURCES: Final = ("*.py", "*.yaml", "*.tpl", "*.java", "*.txt", "*.toml", "*.sh", "Dockerfile")
_NAME: Final = re.compile(r"[A-Za-z][a-z0-9]*(?:[A-Z][A-Za-z0-9]*|(?:_[a-z0-9]+)+)")
_FIELD: Final = re.compile(r"(?:spec|status)(?:\.(?!py$)[a-z][A-Za-z0-9]*(?:\[\])?)+")
_VALUE: Final = re.compile(r"([a-z][A-Za-z]*(?:\.(?!py$)[a-z][A-Za-z]*)+)(?:=.*)?")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_MODULE: Final = re.compile(r"python3? (?:-P )?-m ([a-z][\w.]*)")
_KEY: Final = re.compile(
    r"(?:(?:\w+\.)?slipway\.dev|banzaicloud\.com|batch\.tutorial\.kubebuilder\.io"
    r"|consumer\.pulsarconsumer\.krvarma\.com)/(?!v\d)[a-z-]+"
)
_PASSED: Final = re.compile(
    r"\./dev (new|test|generate|docs|release|sweep(?: run| replay)?|pulsar \w+|bench \w+)"
    r"([^`\n|#;&>]*)"
)
_OTHERS: Final = frozenset(
    {
        # Fields of Kubernetes and names of other projects, which the code does not need.
        *("activeDeadlineSeconds", "serviceDiscoveryRole", "valueFrom", "envFrom", "renewTime"),
        *("holderIdentity", "allowVolumeExpansion", "vmRolloutStrategy", "managedFields"),
        *("CAP_SYS_PTRACE", "snapshotInProgress", "namePrefix", "maxMessageSize"),
        *("namespaceIsolation", "globalNamespaces"),
        *("GitRepository", "dependsOn", "keyBytes", "serviceSelector"),
        *("subscriptionExpirationTimeMinutes", "jvm_memory_pool_allocated_bytes_total"),
        *("AuthenticationProviderOpenID", "openIDAllowedTokenIssuers", "openIDAllowedAudiences"),
        *("DecentralizedLiveMigration", "NoSuitableNodesForHostModelMigration"),
    }
)


@cache
def read_words() -> frozenset[str]:
    """Return every word of the code."""
    words: set[str] = set()
    for folder in ("lab", "libs", "operators", "tools", "helm", "deploy", "tests", "3rdparty"):
        for pattern in _SOURCES:
            for path in (ROOT / folder).rglob(pattern):
                words.update(re.findall(r"\w+", path.read_text(errors="replace")))
    for name in ("dev", "pants", "pants.toml", "pyproject.toml", "conftest.py"):
        words.update(re.findall(r"\w+", (ROOT / name).read_text()))
    return frozenset(words)


@cache
def read_schemas() -> tuple[Mapping[str, Any], ...]:
    """Return the schemas of all kinds in all versions."""
    crds = [yaml.safe_load(path.read_text()) for path in ROOT.glob("helm/*/files/crds/*.yaml")]
    return tuple(
        version["schema"]["openAPIV3Schema"] for crd in crds for version in crd["spec"]["versions"]
    )


@cache
def read_values() -> tuple[Mapping[str, Any], ...]:
    """Return the values of all charts, with settings that values.yaml does not list."""
    schema = json.loads((ROOT / "helm" / "values.schema.json").read_text())
    settings = dict.fromkeys(schema["properties"]["settings"]["properties"])
    paths = ROOT.glob("helm/*/values.yaml")
    return tuple({**yaml.safe_load(path.read_text()), "settings": settings} for path in paths)


def spans_of(page: Path, form: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Find what stands in code spans and has a form as a whole."""
    for span in _SPAN.findall(prose_of(page)):
        if found := form.fullmatch(span):
            yield found


def has_field(schema: Mapping[str, Any], path: list[str]) -> bool:
    """Return whether a schema has a field; what it keeps as it is has any."""
    if not path or schema.get("x-kubernetes-preserve-unknown-fields"):
        return True
    name = path[0].removesuffix("[]")
    while "items" in schema:
        schema = schema["items"]
    if isinstance(free := schema.get("additionalProperties"), Mapping):
        return has_field(free, path[1:])
    below = schema.get("properties", {}).get(name)
    return below is not None and has_field(below, path[1:])


def has_value(values: object, path: list[str]) -> bool:
    """Return whether a chart has a value; what is empty or a map of the user's own has any."""
    if not path:
        return True
    if not isinstance(values, Mapping) or not values:
        return values in ({}, None)
    return path[0] in values and has_value(values[path[0]], path[1:])


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_names_in_code_are_of_the_code(page: Path) -> None:
    """Such as reasons, metrics, settings, fields and alerts: each is a word of the code."""
    named = {found[0] for found in spans_of(page, _NAME)}

    assert named - read_words() - _OTHERS == set()


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_fields_that_are_named_exist(page: Path) -> None:
    missing = [
        found[0]
        for found in spans_of(page, _FIELD)
        if not any(has_field(schema, found[0].split(".")) for schema in read_schemas())
    ]

    assert missing == []


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_values_of_charts_that_are_named_exist(page: Path) -> None:
    known = {name for values in read_values() for name in values}
    missing = [
        found[1]
        for found in spans_of(page, _VALUE)
        if found[1].split(".")[0] in known
        if not any(has_value(values, found[1].split(".")) for values in read_values())
        # A field of a spec may have the name of a value.
        if not any(has_field(schema, ["spec", *found[1].split(".")]) for schema in read_schemas())
    ]

    assert missing == []


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_variables_that_are_named_exist(page: Path) -> None:
    generated = [*DOCS.glob("reference/*/settings.md"), DOCS / "reference/consumer-contract.md"]
    texts = [path.read_text() for path in generated]
    common = (DOCS / "reference/settings.md").read_text()
    texts += [common.replace("<ID>", folder.name.upper()) for folder in ROOT.glob("operators/*")]
    known = {name for text in texts for name in _VARIABLE.findall(text)}
    # The contract shortens the names of its variables.
    short = {name.removeprefix("PULSAR_CONSUMER_") for name in known}
    text = prose_of(page).replace("<ID>", "PODSET")
    named = {name for span in _SPAN.findall(text) for name in _VARIABLE.findall(span)}

    assert named - known - short - read_words() - _OTHERS == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_modules_that_are_run_exist(page: Path) -> None:
    for module in _MODULE.findall(page.read_text()):
        # The import name of the library in an installation.
        module = module.replace(PACKAGE, "libs.common")
        if "greeter" not in module and "backups" not in module:
            assert importlib.util.find_spec(module) is not None, module


_PACKAGES: Final = {
    "new": "tools.scaffold.__main__",
    "test": "tools.gate.__main__",
    "bench": "lab.bench.__main__",
    "sweep": "lab.sweep.__main__",
    "kubevirt-sim": "lab.kubevirt_sim.command",
    "guest-image": "lab.guest.command",
}
"""Modules of the commands whose package does not have their name."""


@cache
def read_help(command: str) -> str:
    """Return the help of a command of ./dev that passes its options on."""
    name, _, word = command.partition(" ")
    benchmark = word if name == "bench" else ""
    package = _PACKAGES.get(name, f"tools.{name}.__main__")
    module = importlib.import_module(f"lab.bench.{benchmark}" if benchmark else package)
    arguments = [command] if benchmark or not word else [name, word]
    said = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [*arguments, "--help"]),
        contextlib.redirect_stdout(said),
        contextlib.suppress(SystemExit),
    ):
        module.main()
    return said.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_that_are_passed_on_exist(page: Path) -> None:
    for command, rest in _PASSED.findall(page.read_text()):
        used = set(re.findall(r"(?<!\S)(--[a-z-]+)", rest))
        assert not used or used <= set(re.findall(r"--[a-z-]+", read_help(command))), command


def read_column(page: str, title: str) -> list[str]:
    """Return the first column of the table of a page whose first title is the given one."""
    _, _, rest = (ROOT / page).read_text().partition(f"\n| {title} |")
    rows = rest.split("\n\n")[0].splitlines()[2:]
    return [row.split("|")[1].strip() for row in rows]


def test_lines_of_the_log_are_those_that_are_written() -> None:
    code = "".join(path.read_text() for path in (ROOT / "libs/common").rglob("*.py"))
    lines = read_column("docs/howto/debug.md", "line")

    assert lines
    assert [line for line in lines if f'"{line}' not in code] == []


def test_log_lines_in_examples_are_those_that_are_written() -> None:
    code = "".join(
        path.read_text()
        for folder in ("libs", "operators")
        for path in (ROOT / folder).rglob("*.py")
    )
    shown = {
        (name_of(page), message)
        for page in WRITTEN
        for message in re.findall(r'"msg": ?"([^"]+)"', page.read_text())
    }

    assert shown
    assert {(page, message) for page, message in shown if f'"{message}"' not in code} == set()


def test_alerts_of_the_library_are_all_explained() -> None:
    text = (ROOT / "helm/operator-common/templates/_alerts.tpl").read_text()

    alerts = re.findall(r"- alert: (\w+)", text)
    page = (ROOT / "docs/howto/alerts.md").read_text().partition("\n## podset")[0]
    assert re.findall(r"^### (\w+)", page, re.MULTILINE) == alerts


def test_alerts_are_as_many_as_the_comparison_of_charts_says() -> None:
    common = (ROOT / "helm/operator-common/templates/_alerts.tpl").read_text().count("- alert: ")
    own = [
        (
            path.read_text().count("- alert: ")
            if (path := folder / "files/alerts.yaml").is_file()
            else 0
        )
        for folder in (ROOT / "helm" / operator for operator in list_operators())
    ]
    page = (ROOT / "docs" / "explanation" / "comparison.md").read_text(encoding="utf-8")

    assert f": {common + min(own)} to {common + max(own)} per operator" in page


def test_variables_of_the_tools_are_all_explained() -> None:
    found = {
        name
        for folder in ("lab", "tools", "libs", "tests")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(
            r'(?:Final = |environ\.get\(\s*|environ\[)"(SLIPWAY_\w+)"', path.read_text()
        )
    }
    column = " ".join(read_column("docs/howto/local-development.md", "variable"))

    assert set(re.findall(r"SLIPWAY_\w+", column)) >= found


def test_versions_that_an_installation_takes_are_those_of_the_charts() -> None:
    (needed,) = {
        yaml.safe_load(path.read_text())["kubeVersion"] for path in ROOT.glob("helm/*/Chart.yaml")
    }
    text = (DOCS / "howto/install.md").read_text()
    helm = TOOL_MODULES["helm"].rpartition("@v")[2]

    assert f"Kubernetes {needed[2:6]} or later" in text
    assert f"is tested on {KUBERNETES[1:].rpartition('.')[0]}." in text
    assert f"are tested with {helm.rpartition('.')[0]} " in text


def test_operators_with_cluster_wide_permissions_are_named() -> None:
    rules = {path.parts[-3]: path.read_text() for path in ROOT.glob("helm/*/files/rbac.yaml")}
    taking = {name for name, text in rules.items() if yaml.safe_load(text)["clusterRules"]}
    page = (DOCS / "howto/install.md").read_text()
    section = page.partition("### Permissions")[2].partition("###")[0]
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (.+) \|$", section, re.MULTILINE)[1:])
    readme = " ".join((ROOT / "README.md").read_text().split())
    named = re.search(r"Only ([a-z, ]+) also get a \[ClusterRole\]", readme)

    assert rows.pop("all others") == "none"
    assert {name for name, what in rows.items() if not what.startswith("none")} == taking
    assert rows.keys() <= set(list_operators())
    assert named is not None
    assert set(re.split(", | and ", named[1])) == taking


def test_keys_of_labels_and_annotations_are_all_explained() -> None:
    files = [*ROOT.glob("operators/*/naming.py"), *ROOT.glob("operators/*/units.py")]
    files += [ROOT / "libs/common/labels.py", *ROOT.glob("libs/contracts/*.py")]
    modules = [
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for path in files
    ]
    used = {
        text
        for module in modules
        for text in vars(module).values()
        if isinstance(text, str) and _KEY.fullmatch(text)
    }
    page = DOCS / "reference" / "labels-and-annotations.md"
    named = {span.partition(":")[0] for span in _SPAN.findall(page.read_text())}

    assert used - named == set()
    assert {name for name in named if _KEY.fullmatch(name)} - used <= {"slipway.dev/permissions"}


def test_each_operator_has_a_row_in_the_readme() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(operators/", (ROOT / "README.md").read_text(), re.MULTILINE)

    assert sorted(rows) == list_operators()


def test_values_in_the_comparison_of_charts_exist() -> None:
    """The column of Slipway names values of the charts."""
    page = (ROOT / "docs" / "explanation" / "comparison.md").read_text(encoding="utf-8")
    rows = page.partition("\n## The charts\n")[2].splitlines()
    cells = [row.split("|")[2] for row in rows if row.startswith("|")]
    named = {name for cell in cells for name in re.findall(r"`([A-Za-z.]+)`", cell)}
    values = yaml.safe_load((ROOT / "helm" / "podset" / "values.yaml").read_text())

    assert len(named) > 30
    for name in named:
        found = values
        for part in name.split("."):
            assert part in found, name
            found = found[part]


def test_page_lists_what_the_fake_api_server_does_not_refuse() -> None:
    page = (ROOT / "docs" / "howto" / "test-an-operator.md").read_text(encoding="utf-8")
    section = page.partition("### What the fake API server does not refuse")[2].partition("\n#")[0]

    assert set(re.findall(r"^\* (.*)$", section, re.MULTILINE)) == NOT_REFUSED

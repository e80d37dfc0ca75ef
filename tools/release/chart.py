"""The chart of a release: the one of the checkout, which installs the images of the release."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.common import fastyaml
from libs.common.project.settings import listed_settings
from libs.common.project.sources import OperatorSource
from libs.common.project.values import render_settings_values, render_values_table
from tools.cluster.errors import ToolError
from tools.generate.sources import LIBRARY_CHART, ROOT, load_operators

APP_SETTINGS: Final[Mapping[str, str]] = {"pulsarconsumer": "consumerImage"}
"""Settings that name the image of what an operator runs in its pods."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image that was pushed.

    Attributes:
        repository: Registry and path, such as `registry.example.com/team/podset`.
        digest: Digest, such as `sha256:0123...`.
    """

    repository: str
    digest: str

    @property
    def registry(self) -> str:
        """Host of the registry."""
        return self.repository.partition("/")[0]

    @property
    def path(self) -> str:
        """Repository below the registry."""
        return self.repository.partition("/")[2]

    def __str__(self) -> str:
        """Render as a pod names it."""
        return f"{self.repository}@{self.digest}"


def build_chart(
    source: Path, target: Path, image: Image | None, app: Image | None, version: str = ""
) -> None:
    """Copy a chart so that it stands alone and installs the given images.

    Args:
        source: Folder of the chart in the checkout.
        target: Folder to create; its name is the name of the chart.
        image: Image of the operator; None leaves the one of the checkout's values.
        app: Image of its app, if it has one.
        version: Version of the chart and of the operator; empty keeps the version of the checkout.

    Raises:
        ToolError: The values of the chart have no such fields.
    """
    shutil.copytree(source, target, symlinks=False)
    (operator,) = load_operators(ROOT, [source.name])
    readme = target / "README.md"
    readme.write_text(describe_values(readme.read_text(), operator))
    if version:
        metadata = target / "Chart.yaml"
        pattern = re.compile(r"^(version|appVersion): .*$", re.MULTILINE)
        metadata.write_text(pattern.sub(rf"\g<1>: {version}", metadata.read_text()))
    values = target / "values.yaml"
    wanted: dict[str, dict[str, str]] = {}
    if image is not None:
        wanted["image"] = {
            "registry": image.registry,
            "repository": image.path,
            "digest": image.digest,
        }
    if app is not None:
        wanted["settings"] = {APP_SETTINGS[source.name]: str(app)}
    values.write_text(replace_values(values.read_text(), wanted))


def describe_values(readme: str, operator: OperatorSource) -> str:
    """Return the README of a chart with all its values, instead of links to pages of a checkout."""
    library = ROOT / LIBRARY_CHART
    settings = render_settings_values(operator, listed_settings(operator))
    values = render_values_table(operator, library)
    section = f"## Values\n\n{values}\n\n## Settings\n\n{settings}\n"
    text, count = re.subn(
        r"^## Values\n.*?(?=^## |\Z)",
        lambda _: f"{section}\n",
        readme,
        flags=re.MULTILINE | re.DOTALL,
    )
    if count != 1:
        raise ToolError(f"helm/{operator.id}/README.md needs one section Values; add it")
    return text


def replace_values(text: str, wanted: Mapping[str, Mapping[str, str]]) -> str:
    """Set fields of the second level in values, and keep the comments.

    Raises:
        ToolError: A field is not there.
    """
    for section, fields in wanted.items():
        for name, value in fields.items():
            pattern = rf"(^{section}:\n(?:(?:[ #].*)?\n)*?  {name}:)[^\n]*$"
            text, count = re.subn(pattern, rf'\g<1> "{value}"', text, flags=re.MULTILINE)
            if not count:
                raise ToolError(f"values.yaml: {section}.{name}: no such field; check the chart")
    held = fastyaml.load(text)
    for section, fields in wanted.items():
        assert all(held[section][name] == value for name, value in fields.items())
    return text

"""CRDs of a project: a kind whose versions differ needs a conversion."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from libs.common.project.crds import render_crds
from libs.common.project.errors import GenerateError
from libs.common.project.sources import OperatorSource
from libs.common.testing.widget import Settings
from libs.common.testing.widget_versions import CONVERSION, Widget

SOURCE = OperatorSource(
    id="widget",
    resources=CONVERSION.models,
    rules=(),
    settings=Settings,
    conversions=(CONVERSION,),
    code=Path(),
    chart=Path("chart"),
    generator="test",
)


def test_versions_of_a_kind_are_rendered_into_one_crd() -> None:
    (text,) = render_crds(SOURCE).values()

    versions = yaml.safe_load(text)["spec"]["versions"]
    assert [(each["name"], each["storage"]) for each in versions] == [
        ("v1", True),
        ("v1alpha1", False),
    ]


def test_versions_that_differ_need_a_conversion() -> None:
    with pytest.raises(GenerateError, match="Widget: its versions differ; declare their Conver"):
        render_crds(replace(SOURCE, conversions=()))


def test_one_version_needs_no_conversion() -> None:
    assert render_crds(replace(SOURCE, resources=(Widget,), conversions=()))

"""CRDs of a project: one for each kind, with all its versions."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from libs.common.crd import CustomResource, KubernetesModel, ShortText
from libs.common.project.crds import render_crds
from libs.common.project.errors import GenerateError
from libs.common.project.sources import OperatorSource
from libs.common.testing.widget import Settings


class BoxSpec(KubernetesModel):
    """BoxSpec is the desired state of a Box."""

    text: ShortText = ""
    """text is the content of the box."""


class OtherSpec(KubernetesModel):
    """OtherSpec is a desired state with another field."""

    note: ShortText = ""
    """note is the content of the box."""


class Box(CustomResource, group="test.slipway.dev", version="v1", plural="boxes"):
    """Box holds a text."""

    spec: BoxSpec


class OldBox(
    CustomResource,
    group="test.slipway.dev",
    version="v1alpha1",
    plural="boxes",
    kind="Box",
    singular="box",
    storage=False,
):
    """Box holds a text."""

    spec: BoxSpec


class DifferentBox(
    CustomResource,
    group="test.slipway.dev",
    version="v1alpha1",
    plural="boxes",
    kind="Box",
    singular="box",
    storage=False,
):
    """Box holds a note."""

    spec: OtherSpec


def build_source(*models: type[CustomResource]) -> OperatorSource:
    return OperatorSource(
        id="box",
        resources=models,
        rules=(),
        settings=Settings,
        code=Path(),
        chart=Path("chart"),
        generator="test",
    )


def test_versions_of_a_kind_are_rendered_into_one_crd() -> None:
    (text,) = render_crds(build_source(Box, OldBox)).values()

    versions = yaml.safe_load(text)["spec"]["versions"]
    assert [(each["name"], each["storage"]) for each in versions] == [
        ("v1", True),
        ("v1alpha1", False),
    ]


def test_versions_that_differ_are_refused() -> None:
    with pytest.raises(GenerateError, match="Box: its versions differ, so the API server"):
        render_crds(build_source(Box, DifferentBox))

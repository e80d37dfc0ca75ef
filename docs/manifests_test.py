"""Objects of our kinds that pages and the notes of charts show are let in by their models."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from docs.docs_test import PAGES, ROOT, name_of
from libs.common.crd import CustomResource, kind_of
from libs.common.kinds import Manifest
from tools.dev.operators import list_operators

NOTES: Final = sorted((ROOT / "helm").glob("*/templates/NOTES.txt"))
_BLOCK: Final = re.compile(r"^( *)```yaml[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INPUT: Final = re.compile(r"<<-?'?(\w+)'?\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_METADATA: Final = {"name": "shown", "namespace": "default"}


@cache
def load_models() -> dict[tuple[str, str], type[CustomResource]]:
    """Return the model of each of our kinds."""
    modules = (importlib.import_module(f"operators.{name}.api") for name in list_operators())
    models: list[type[CustomResource]] = [each for module in modules for each in module.RESOURCES]
    return {(kind_of(each).api_version, kind_of(each).kind): each for each in models}


def find_objects(text: str) -> Iterator[Manifest]:
    """Yield the objects in the YAML of a page, and in what it gives to commands."""
    for found in (*_BLOCK.finditer(text), *_INPUT.finditer(text)):
        documents: list[Any] = list(yaml.safe_load_all(found[2]))
        yield from (each for each in documents if isinstance(each, dict) and "spec" in each)


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=name_of)
def test_objects_that_are_shown_can_be_applied(page: Path) -> None:
    for shown in find_objects(page.read_text()):
        model = load_models().get((shown.get("apiVersion", ""), shown.get("kind", "")))
        if model is not None:
            model.parse({**shown, "metadata": {**_METADATA, **(shown.get("metadata") or {})}})


def test_objects_are_found_in_yaml_and_in_what_commands_are_given() -> None:
    fence = "```"
    command = "kubectl apply -f - <<EOF\nkind: B\nspec: {}\nEOF"
    page = f"{fence}yaml\nkind: A\nspec: {{}}\n{fence}\n\n{fence}sh\n{command}\n{fence}\n"

    assert [each["kind"] for each in find_objects(page)] == ["A", "B"]

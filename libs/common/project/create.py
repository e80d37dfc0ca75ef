"""Write a new project: the three files that people edit, and the generated files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final

from libs.common.project.errors import GenerateError
from libs.common.project.names import Names
from libs.common.version import __version__

TEMPLATES: Final = Path(__file__).with_name("template")
"""Templates of a project; those of `HAND` are of any operator."""
HAND: Final = ("api.py", "controller.py", "test_operator.py")
"""The files of a project that people edit."""
PACKAGE: Final = "slipway_operators"
"""Package name of the library in projects."""
_STANDALONE: Final = {"package": PACKAGE, "local": "", "run": f"{PACKAGE}.run controller"}
_SETTINGS: Final = ("pyproject.toml", "requirements.in", ".dockerignore", ".gitignore")
_SECTION: Final = re.compile(r"^#\[ (\w+)\n(.*?)^#\]\n", re.MULTILINE | re.DOTALL)


def create_project(
    root: Path,
    names: Names,
    *,
    finalizer: bool = False,
    cluster: bool = False,
    second_kind: str = "",
    webhook: bool = False,
) -> list[Path]:
    """Write a new project into a folder that is empty or does not exist.

    Args:
        root: The folder.
        names: Names of the operator and its kind.
        finalizer: Whether the operator cleans up outside of Kubernetes before an object is deleted.
        cluster: Whether objects of the kinds are cluster-scoped.
        second_kind: Another kind, with a controller of its own; empty for none.
        webhook: Whether the operator has a webhook for its first kind.

    Raises:
        GenerateError: The folder is not empty, or the second kind cannot have this name.
    """
    if root.exists() and any(root.iterdir()):
        raise GenerateError([f"{root} is not empty; choose a new folder"])
    kinds = [names]
    if second_kind:
        second = Names.build(names.id, second_kind, names.group)
        if second.snake == names.snake or second.plural == names.plural:
            raise GenerateError([f"the second kind {second_kind!r} must have another name"])
        kinds.append(second)
    options = {"finalizer": finalizer, "cluster": cluster, "webhook": webhook}
    texts = {
        name: render(TEMPLATES / f"{name.removeprefix('.')}.tmpl", kinds, options, _STANDALONE)
        for name in (*HAND, *_SETTINGS)
    }
    root.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")
    return [root / name for name in texts]


def render(
    template: Path, kinds: Sequence[Names], options: Mapping[str, bool], place: Mapping[str, str]
) -> str:
    """Render a template.

    Args:
        template: The file.
        kinds: Names of the kinds, which are of one operator.
        options: Options of `create_project` by name.
        place: Package name of the library, prefix of imports between files of the operator, and the
            module that runs it.

    Lines that end with `#? option` or `#? no option` are kept or dropped, and lines between
    `#[ option` and `#]` as well. Lines between `#[ kind` and `#]` are repeated for each kind.
    """
    lines = []
    for line in template.read_text(encoding="utf-8").splitlines():
        text, mark, condition = line.partition("  #? ")
        wanted = condition.removeprefix("no ")
        if not mark or options[wanted] != condition.startswith("no "):
            lines.append(text)
    shared = {**_describe_all(kinds), **place}

    def fill(section: re.Match[str]) -> str:
        subject, text = section.groups()
        chosen = kinds if subject == "kind" else kinds[: options[subject]]
        values = [shared | _describe(each, kinds[0]) for each in chosen]
        return "".join(Template(text).substitute(each) for each in values)

    text = _SECTION.sub(fill, "\n".join([*lines, ""]))
    return f"{Template(text).substitute(shared).rstrip()}\n"


def _describe_all(kinds: Sequence[Names]) -> dict[str, str]:
    """Return what templates say of all kinds; the names of imports are in isort order."""
    models = sorted(each.kind for each in kinds)
    return {
        "id": kinds[0].id,
        "reviewer": f"review_{kinds[0].snake}",
        "group": kinds[0].group,
        "kinds": " and ".join(each.kind for each in kinds),
        "kinds_or": " or a ".join(each.kind for each in kinds),
        "uppers": ", ".join(sorted(each.snake.upper() for each in kinds)),
        "constants": ", ".join(sorted(("RESOURCES", *(each.snake.upper() for each in kinds)))),
        "models": ", ".join(models),
        "classes": ", ".join(sorted(("ConditionType", "Reason", *models))),
        "plans": ", ".join(f"plan{_suffix(each, kinds[0])}" for each in kinds),
        "resources": _tuple([each.kind for each in kinds]),
        "builders": _tuple([f"build_controller{_suffix(each, kinds[0])}" for each in kinds]),
        "version": __version__,
    }


def _describe(names: Names, first: Names) -> dict[str, str]:
    """Return what templates say of one kind; functions of further kinds end with its name."""
    word = "" if names == first else names.kind.lower()
    return {
        "kind": names.kind,
        "upper": names.snake.upper(),
        "snake": names.snake,
        "plural": names.plural,
        "suffix": _suffix(names, first),
        # Objects of two kinds can have the same name, their ConfigMaps cannot.
        "infix": f'"{word}", ' if word else "",
        "part": f"{word}-" if word else "",
        "controller": f'f"{{ID}}-{word}"' if word else "ID",
    }


def _suffix(names: Names, first: Names) -> str:
    return "" if names == first else f"_{names.snake}"


def _tuple(items: Sequence[str]) -> str:
    return f"{items[0]}," if len(items) == 1 else ", ".join(items)

"""Render the package of an operator: `__init__.py` and `__main__.py`, which only name things."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from libs.common.project.errors import GenerateError
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_notice

_LINE_LIMIT: Final = 100
_INIT: Final = '"""{summary}"""\n'
_MAIN: Final = '''\
"""Run the {id} operator: `python -m operators.{id}`."""

from libs.common import startup


def main() -> int:
    """Import the operator, and run it."""
    from libs.common.runtime import main as run_operator
    from operators.{id}.controller import OPERATOR

    return run_operator(OPERATOR)


if __name__ == "__main__":
    startup.run(main)
'''


def render_entry_point(operator: OperatorSource) -> dict[Path, str]:
    """Render the docstring of the package and the module that `python -m` runs.

    Raises:
        GenerateError: The operator has no summary, or a summary that does not fit on a line.
    """
    controller = operator.path_of("controller")
    docstring = _INIT.format(summary=operator.summary)
    if not operator.summary or len(docstring) > _LINE_LIMIT + 1:
        limit = _LINE_LIMIT + 1 - len(_INIT.format(summary=""))
        raise GenerateError([f"{controller}: summary must have 1 to {limit} characters"])
    notice = render_notice(operator.origin(controller))
    return {
        operator.code / "__init__.py": notice + docstring,
        operator.code / "__main__.py": notice + _MAIN.format(id=operator.id),
    }

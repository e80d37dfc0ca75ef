"""Names of a new operator of this repository, which replace the names of the tutorial."""

from __future__ import annotations

import re

from libs.common.project.errors import GenerateError
from libs.common.project.names import Names
from tools.cluster.errors import ToolError


def build_names(operator: str, kind: str, plural: str, group: str) -> Names:
    """Check names, and derive the plural if it is empty.

    Raises:
        ToolError: A name cannot be used; the message says what it must look like.
    """
    try:
        return Names.build(operator, kind, group, plural)
    except GenerateError as err:
        raise ToolError(f"Cannot use these names: {'; '.join(err.problems)}") from None


def rename(text: str, names: Names, *, python: bool = False) -> str:
    """Return a text or path of the tutorial with other names in it.

    Args:
        text: Text about the operator greeter and its kind Greeting.
        names: The other names.
        python: Whether the kind in lower case is a name of Python.
    """
    others = {
        "tutorial.slipway.dev": names.group,
        "greetings": names.plural,
        "Greetings": f"{names.kind}s" if names.kind[-1] != "s" else names.kind,
        "GREETING": names.snake.upper(),
        "Greeting": names.kind,
        "greeting": names.snake if python else names.kind.lower(),
        "greeter": names.id,
        "Greeter": names.id.capitalize(),
    }
    return re.sub("|".join(map(re.escape, others)), lambda found: others[found[0]], text)

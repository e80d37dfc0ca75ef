"""The same rules for Vale, for people who have it.

Its rules of type `existence`: https://vale.sh/docs/topics/styles

proselint is not used: version 0.16.0 reported 44 places in README, how-to pages, explanations,
tutorials and decisions apart from the shape of quotation marks, and hardly any was a mistake. It
takes a heading and the sentence below it for a repeated word, and "resume" for "résumé".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tools.prose.rules import RULES, Rule

STYLE: Final = Path(".vale/styles/Slipway")
_CONFIG: Final = """\
# Written by `./dev prose --write-vale`. Vale reads it; the gate uses `./dev prose`.
StylesPath = .vale/styles
MinAlertLevel = warning

[*.md]
BasedOnStyles = Slipway
"""


def render_vale() -> dict[Path, str]:
    """Return the files of the Vale configuration: path below the root to text."""
    return {Path(".vale.ini"): _CONFIG} | {
        STYLE / f"{rule.name}.yml": _render(rule) for rule in RULES
    }


def _render(rule: Rule) -> str:
    return (
        "# Written by `./dev prose --write-vale`.\n"
        "extends: existence\n"
        f"message: {json.dumps(f'%s: {rule.instead}')}\n"
        "level: warning\n"
        "ignorecase: true\n"
        "nonword: true\n"
        f"tokens:\n  - {json.dumps(rule.pattern)}\n"
    )

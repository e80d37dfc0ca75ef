"""Names of a new operator of this repository, which replace the names of the tutorial."""

from __future__ import annotations

import re
from typing import Final

from libs.common.project.errors import GenerateError
from libs.common.project.names import Names
from tools.cluster.errors import ToolError

_NEUTRAL: Final = {
    "the people to greet": "the names for which ConfigMaps are created",
    "the beginning of each greeting": "the beginning of the text in each ConfigMap",
    "A ConfigMap with a greeting for each of two people": "A ConfigMap for each of two items",
    "a ConfigMap with a greeting for each name": "a ConfigMap for each item",
    "a ConfigMap with a greeting for each of its": "a ConfigMap for each of its",
    "a ConfigMap for each name": "a ConfigMap for each item",
    "A ConfigMap for each name": "A ConfigMap for each item",
    "the ConfigMap with the greeting of a person": "the ConfigMap of an item",
    "each_name_gets_a_greeting": "each_item_gets_a_config_map",
    'data={"greeting"': 'data={"text"',
    '{"greeting": "Hello, ada!"}': '{"text": "text, one!"}',
    "Good morning": "other text",
    "Good evening": "new text",
    "Hello": "text",
    "phrase": "prefix",
    "person": "item",
    "ada": "one",
    "ADA": "ONE",
    "grace": "two",
    "barbara": "three",
    "team": "example",
    "TEAM": "EXAMPLE",
}
"""Neutral words, for any kind, by words of the tutorial."""
_WORDS: Final = "|".join(
    # Single words match only as whole words; phrases match anywhere, for example in comments.
    rf"(?<!\w){re.escape(words)}(?!\w)" if words.isalpha() else re.escape(words)
    for words in sorted(_NEUTRAL, key=len, reverse=True)
)


def build_names(operator: str, kind: str, plural: str, group: str) -> Names:
    """Check names, and derive the plural if it is empty.

    Raises:
        ToolError: A name is not valid; the message describes valid names.
    """
    try:
        return Names.build(operator, kind, group, plural)
    except GenerateError as err:
        raise ToolError(f"Cannot use these names: {'; '.join(err.problems)}") from None


def rename(text: str, names: Names, *, python: bool = False) -> str:
    """Replace the names in a text or path of the tutorial, and all words about greetings.

    Args:
        text: Text about the operator greeter and its kind Greeting.
        names: The new names.
        python: Whether to write the lower-case kind as a Python identifier.
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
    text = re.sub(_WORDS, lambda found: _NEUTRAL[found[0]], text)
    return re.sub("|".join(map(re.escape, others)), lambda found: others[found[0]], text)

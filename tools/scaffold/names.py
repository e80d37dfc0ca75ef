"""What a new operator is called, and its names in the place of those of the tutorial."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from tools.cluster.errors import ToolError

_ID: Final = re.compile(r"[a-z][a-z0-9]{1,19}")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{1,29}")
_PLURAL: Final = re.compile(r"[a-z][a-z0-9]{1,39}")
_GROUP: Final = re.compile(r"(?=.{3,253}$)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+")
_WORD_END: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class Names:
    """Hold the names that an operator with one kind goes by.

    Attributes:
        id: Id of the operator: package, chart, image, release.
        kind: Its kind, such as `Backup`.
        plural: Plural of the kind in URLs, such as `backups`.
        group: API group, such as `backups.slipway.dev`.
    """

    id: str
    kind: str
    plural: str
    group: str

    @classmethod
    def build(cls, operator: str, kind: str, plural: str = "", group: str = "") -> Self:
        """Check names, and fill in those that follow from others.

        Raises:
            ToolError: A name cannot be used; the message says what it must look like.
        """
        plural = plural or _pluralize(kind.lower())
        group = group or f"{operator}.slipway.dev"
        checks = (
            ("id", operator, _ID, "2 to 20 lower-case letters and digits, such as backups"),
            ("kind", kind, _KIND, "2 to 30 letters and digits with a capital first, as Backup"),
            ("plural", plural, _PLURAL, "2 to 40 lower-case letters and digits, such as backups"),
            ("group", group, _GROUP, "a domain name, such as backups.example.com"),
        )
        wrong = [f"the {what} {name!r} must be {rule}" for what, name, _, rule in _failing(checks)]
        if wrong:
            raise ToolError(f"Cannot name an operator so: {'; '.join(wrong)}")
        return cls(operator, kind, plural, group)

    @property
    def snake(self) -> str:
        """The kind as a Python name, such as `backup_plan`."""
        return _WORD_END.sub("_", self.kind).lower()

    def rename(self, text: str, *, python: bool = False) -> str:
        """Return a text or path of the tutorial with these names in it.

        Args:
            text: What speaks of the operator greeter and its kind Greeting.
            python: Whether the kind in lower case is a name of Python.
        """
        names = {
            "tutorial.slipway.dev": self.group,
            "greetings": self.plural,
            "Greetings": f"{self.kind}s" if self.kind[-1] != "s" else self.kind,
            "GREETING": self.snake.upper(),
            "Greeting": self.kind,
            "greeting": self.snake if python else self.kind.lower(),
            "greeter": self.id,
            "Greeter": self.id.capitalize(),
        }
        return re.sub("|".join(map(re.escape, names)), lambda found: names[found[0]], text)


type _Check = tuple[str, str, re.Pattern[str], str]


def _failing(checks: tuple[_Check, ...]) -> list[_Check]:
    return [check for check in checks if not check[2].fullmatch(check[1])]


def _pluralize(word: str) -> str:
    """Return a plural as kubectl's users expect it: backups, policies, classes."""
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"

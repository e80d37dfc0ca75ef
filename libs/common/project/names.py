"""Names of a new operator and its kind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from keyword import iskeyword
from typing import Final, Self

from libs.common.kinds import pluralize
from libs.common.project.errors import GenerateError

_ID: Final = re.compile(r"[a-z][a-z0-9]{1,19}")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{1,29}")
_PLURAL: Final = re.compile(r"[a-z][a-z0-9]{1,39}")
_GROUP: Final = re.compile(r"(?=.{3,253}$)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+")
_WORD_END: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of an operator with one kind.

    Attributes:
        id: Id of the operator: package, chart, image, release.
        kind: Kind, such as `Backup`.
        plural: Plural of the kind in URLs, such as `backups`.
        group: API group, such as `backups.example.com`.
    """

    id: str
    kind: str
    plural: str
    group: str

    @classmethod
    def build(cls, operator: str, kind: str, group: str, plural: str = "") -> Self:
        """Validate the names, and derive the plural if none is given.

        Raises:
            GenerateError: A name is invalid; the message describes its format.
        """
        plural = plural or pluralize(kind.lower())
        checks = (
            ("id", operator, _ID, "2 to 20 lower-case letters and digits, such as backups"),
            ("kind", kind, _KIND, "2 to 30 letters and digits with a capital first, as Backup"),
            ("plural", plural, _PLURAL, "2 to 40 lower-case letters and digits, such as backups"),
            ("group", group, _GROUP, "a domain name, such as backups.example.com"),
        )
        wrong = [
            f"the {what} {name!r} must be {rule}"
            for what, name, pattern, rule in checks
            if iskeyword(name) or not pattern.fullmatch(name)
        ]
        if wrong:
            raise GenerateError(wrong)
        return cls(operator, kind, plural, group)

    @property
    def snake(self) -> str:
        """The kind as a Python name, such as `backup_plan`."""
        return _WORD_END.sub("_", self.kind).lower()

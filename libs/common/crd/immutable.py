"""CEL rules for immutable fields."""

from __future__ import annotations

from typing import Final

from libs.common.kinds import Manifest

_RESERVED: Final = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for"),
        *("function", "if", "import", "let", "loop", "package", "namespace", "return", "var"),
        *("void", "while"),
    }
)


def escape_property(name: str) -> str:
    """Escape a property name for use in a CEL rule, as the API server does."""
    if name in _RESERVED:
        return f"__{name}__"
    escaped = name.replace("__", "__underscores__")
    for sign, word in ((".", "dot"), ("-", "dash"), ("/", "slash")):
        escaped = escaped.replace(sign, f"__{word}__")
    return escaped


def build_immutable_rules(
    name: str, mode: str, *, always_present: bool
) -> tuple[Manifest, list[Manifest]]:
    """Build the rule on an immutable field, and the rules on the object that contains it.

    A transition rule runs only if both the old and the new value exist. So only a rule on the
    containing object can see that an optional field is set or removed.

    Args:
        name: Serialized name of the field.
        mode: `always`, or `once` for a field that can be set later.
        always_present: Whether the field is required or has a default.
    """
    own = {"rule": "self == oldSelf", "message": f"{name} is immutable"}
    if always_present:
        return own, []
    field = escape_property(name)
    if mode == "once":
        rule = f"!has(oldSelf.{field}) || has(self.{field})"
        message = f"{name} cannot be removed once it is set"
    else:
        rule = f"has(self.{field}) == has(oldSelf.{field})"
        message = f"{name} cannot be set or removed after creation"
    return own, [{"rule": rule, "message": message, "fieldPath": f".{name}"}]

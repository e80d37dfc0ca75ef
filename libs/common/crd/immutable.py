"""CEL rules of fields that keep their value."""

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
    """Build the rule on an immutable field, and those on the object that holds it.

    A transition rule runs only where both old and new value exist, so that setting and removing
    an optional field is seen from the object above alone.

    Args:
        name: Serialized name of the field.
        mode: `always`, or `once` for a field that may be set later.
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

"""CEL rules of custom kinds (`x-kubernetes-validations`), evaluated as kube-apiserver does.

A rule runs where its value exists. A transition rule (one that uses `oldSelf`) also needs the old
value, unless `optionalOldSelf` is set. Other rules are skipped where an update changes nothing
(CRDValidationRatcheting). The libraries of Kubernetes that rules of our own and of well-known CRDs
use are here: strings, lists, `ip`, `cidr` and `quantity`. Addresses and quantities are strings.
Values with `format: date-time` or `duration` stay strings, too.

Source: kubernetes.io/docs/reference/using-api/cel, and the parity suite.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import cel
import orjson
from cel.stdlib import STDLIB_FUNCTIONS

from libs.common.crd.immutable import escape_property
from libs.common.kinds import Manifest
from libs.common.quantity import parse_quantity
from libs.common.testing.fakeapi.fields import item_element
from libs.common.testing.fakeapi.schema import Schema
from libs.common.testing.fakeapi.statuses import Cause

_ABSENT: Final = object()
_STRING_FUNCTIONS: Final = (
    *("indexOf", "join", "lastIndexOf", "lowerAscii", "max", "min", "replace", "split"),
    *("substring", "sum", "trim", "upperAscii"),
)


def find_violations(manifest: Manifest, old: Manifest | None, schema: Schema) -> Iterator[Cause]:
    """Yield what the rules of a custom kind refuse.

    Args:
        manifest: An object that the rest of the schema allows.
        old: The stored object that it replaces; None if it is created.
        schema: The schema of the kind.
    """
    yield from _check(_Value(manifest, _ABSENT if old is None else old), schema, "", root=True)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value and what it replaces, which is `_ABSENT` if nothing can be said to be replaced."""

    new: Any
    old: Any

    def child(self, name: str) -> _Value:
        old = self.old.get(name, _ABSENT) if isinstance(self.old, Mapping) else _ABSENT
        return _Value(self.new[name], old)


def _check(value: _Value, schema: Schema, path: str, *, root: bool = False) -> Iterator[Cause]:
    if value.new is None or not schema.ruled:
        return
    yield from _apply(value, schema, path, root=root)
    if isinstance(value.new, dict):
        if schema.atomic_map:
            value = _Value(value.new, _ABSENT)
        for name in value.new:
            child = schema.field(name)
            if child is not None:
                where = f"{path}[{name}]" if not schema.declares(name) else _join(path, name)
                yield from _check(value.child(name), child, where)
    elif isinstance(value.new, list):
        before = _index(value.old, schema)
        for position, item in enumerate(value.new):
            old = before.get(item_element(item, schema), _ABSENT) if before else _ABSENT
            yield from _check(_Value(item, old), schema.items, f"{path}[{position}]")


def _index(items: Any, schema: Schema) -> dict[str, Any]:
    """Return the old items by key; only items of `map` lists are known again."""
    if schema.list_type != "map" or not isinstance(items, list):
        return {}
    return {item_element(item, schema): item for item in items}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _apply(value: _Value, schema: Schema, path: str, *, root: bool) -> Iterator[Cause]:
    """Yield what the rules of one value refuse."""
    is_new = value.old is _ABSENT
    is_same = not is_new and value.old == value.new
    rules = schema.raw.get("x-kubernetes-validations", ())
    due = [rule for rule in rules if _is_due(rule, is_new=is_new, is_same=is_same)]
    if not due:
        return
    shown = _view(value.new, schema, root=root)
    before = None if is_new else _view(value.old, schema, root=root)
    for rule in due:
        variables = {"self": shown}
        if rule.get("optionalOldSelf"):
            found = cel.OptionalValue.none() if is_new else cel.OptionalValue.of(before)
            variables["oldSelf"] = found
        elif not is_new:
            variables["oldSelf"] = before
        why = _evaluate(rule["rule"], variables)
        if why is None:
            continue
        message = _build_message(rule, variables)
        words = f"rule error: {why} evaluating rule: {message}" if why else message
        where = (path + rule.get("fieldPath", "")).removeprefix(".")
        yield _build_cause(where, rule.get("reason", ""), words, value.new)


def _is_due(rule: Manifest, *, is_new: bool, is_same: bool) -> bool:
    if "oldSelf" in _compile(rule["rule"]).variables():
        return not is_new or bool(rule.get("optionalOldSelf"))
    return not is_same


def _build_message(rule: Manifest, variables: Mapping[str, Any]) -> str:
    with suppress(*_ERRORS):
        if "messageExpression" in rule:
            return str(_run(rule["messageExpression"], variables))
    return str(rule.get("message") or f"failed rule: {rule['rule']}")


def _build_cause(path: str, reason: str, message: str, value: Any) -> Cause:
    path = path or "<nil>"
    if reason == "FieldValueRequired":
        return Cause(path, f"Required value: {message}", reason)
    if reason == "FieldValueForbidden":
        return Cause(path, f"Forbidden: {message}", reason)
    shown = "" if isinstance(value, (dict, list)) else f"{orjson.dumps(value).decode()}: "
    words = "Duplicate" if reason == "FieldValueDuplicate" else "Invalid"
    return Cause(path, f"{words} value: {shown}{message}", reason or "FieldValueInvalid")


def _view(value: Any, schema: Schema, *, root: bool) -> Any:
    """Return the value as rules see it: of the metadata only the names, names of fields escaped."""
    if isinstance(value, list):
        return [_view(item, schema.items, root=False) for item in value]
    if not isinstance(value, dict):
        return value
    out = {}
    for name, child in value.items():
        declared = schema.field(name)
        if root and name == "metadata":
            out[name] = {key: child[key] for key in ("name", "generateName") if key in child}
        elif declared is None:
            out[name] = child
        else:
            shown = escape_property(name) if schema.declares(name) else name
            out[shown] = _view(child, declared, root=False)
    return out


_ERRORS: Final = (RuntimeError, TypeError, ValueError, KeyError, IndexError, ArithmeticError)


def _evaluate(rule: str, variables: Mapping[str, Any]) -> str | None:
    """Return None if the rule holds, "" if it does not, or why it cannot be evaluated."""
    try:
        return None if _run(rule, variables) is True else ""
    except KeyError as error:
        return f"no such key: {error.args[0]}"
    except _ERRORS as error:
        text, _, _ = str(error).partition(". Check that")
        lacks = "; the fake API server lacks it, so test this rule with kube_client"
        return text + lacks if text.startswith("Undefined") else text


def _run(expression: str, variables: Mapping[str, Any]) -> Any:
    context = _context()
    context.set_variable_resolver(variables.get)
    return _compile(expression).execute(context)


@cache
def _compile(expression: str) -> cel.Program:
    return cel.compile(expression)


@cache
def _context() -> cel.Context:
    """Return the functions that rules may call."""
    # `ip.isCanonical(x)` is a method of a value named `ip` here.
    context = cel.Context({"ip": ""})
    for name in _STRING_FUNCTIONS:
        context.add_function(name, STDLIB_FUNCTIONS[name])
    for name, function in _FUNCTIONS.items():
        context.add_function(name, function)
    return context


def _succeeds(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


def _parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if "%" in text:
        raise ValueError(f"IP Address {text!r} with zone value is not allowed")
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        raise ValueError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return address


def _parse_cidr(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    address, slash, length = text.partition("/")
    if not slash or not length.isdecimal():
        raise ValueError(f"network address {text!r} is not valid")
    _parse_ip(address)
    return ipaddress.ip_interface(text)


def _ip(text: str) -> str:
    """Parse an address, or return the address of a network (`cidr(x).ip()`)."""
    return str(_parse_cidr(text).ip if "/" in text else _parse_ip(text))


def _contains_cidr(outer: str, inner: str) -> bool:
    wide, narrow = _parse_cidr(outer).network, _parse_cidr(inner).network
    return wide.version == narrow.version and narrow.subnet_of(wide)  # type: ignore[arg-type]


def _compare(left: str, right: str) -> int:
    one, other = parse_quantity(left), parse_quantity(right)
    return (one > other) - (one < other)


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "isIP": _succeeds(_parse_ip),
    "ip": _ip,
    "isCanonical": lambda _, text: str(_parse_ip(text)) == text,
    "family": lambda text: _parse_ip(text).version,
    "isCIDR": _succeeds(_parse_cidr),
    "cidr": lambda text: str(_parse_cidr(text)),
    "masked": lambda text: str(_parse_cidr(text).network),
    "prefixLength": lambda text: _parse_cidr(text).network.prefixlen,
    "containsIP": lambda network, text: _parse_ip(text) in _parse_cidr(network).network,
    "containsCIDR": _contains_cidr,
    "isQuantity": _succeeds(parse_quantity),
    "quantity": lambda text: text,
    "compareTo": _compare,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "sign": lambda text: _compare(text, "0"),
}

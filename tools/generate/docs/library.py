"""Render the public API of the library: each name with its signature, arguments and errors."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from libs.common.project.create import PACKAGE
from libs.common.project.text import render_page
from libs.common.version import __version__
from tools.generate.sources import GENERATOR

PAGE: Final = Path("docs", "reference", "library.md")
PUBLIC: Final = {
    "runtime": "main Operator Controller Context Result Watch Cache Change Projection "
    "BackoffPolicy Manager",
    "crd": "CustomResource KubernetesModel ObjectStatus Conditions PrinterColumn READY_COLUMN AGE "
    "Scale Rule Immutable Waive ListAtomic ListMap ListSet LabelMap "
    "LabelSelector LocalObjectReference ObjectReference PodTemplate RawObject DnsLabel "
    "DnsSubdomain ShortText LongText Selector Timestamp Uid Count Int32 Port Quantity IntOrString "
    "ParseError parse build_crd kind_of lint_crd",
    "kinds": "Kind Key Manifest build_object describe is_deleting key_of uid_of CONFIG_MAP CRD "
    "DEPLOYMENT ENDPOINT_SLICE NAMESPACE NETWORK_POLICY NODE POD POD_DISRUPTION_BUDGET "
    "PVC SECRET SERVICE STORAGE_CLASS",
    "plan": "Step Apply Create Delete Patch Outcome StepFailure escape_pointer",
    "conditions": "Condition READY build_conditions build_status conditions_of find_condition "
    "is_true parse_time render_time",
    "errors": "SlipwayError TransientError TerminalError ApiError AlreadyExists BadRequest "
    "Conflict Forbidden ForeignObject Invalid NotFound ServerError TooManyRequests Unreachable "
    "UnknownOutcome",
    "settings": "CommonSettings operator_settings CommaList",
    "naming": "build_name label_value short_hash DNS_SUBDOMAIN_LIMIT",
    "labels": "INSTANCE MANAGED_BY matches_selector render_selector",
    "ownership": "build_owner_reference controller_of controller_uid",
    "reading": "text_at map_at maps_at texts_at text_map_at int_at is_set_at quantity_at time_at "
    "condition_at",
    "quantity": "parse_quantity render_quantity",
    "rbac": "grant PolicyRule",
    "metric_specs": "MetricSpec MetricKind",
    "background": "BackgroundQueries",
    "webhooks": "Webhook WebhookSettings Review ReviewResponse serve_webhooks",
    "client": "Client",
    "clock": "Clock SystemClock",
    "startup": "run",
    "testing.conformance": "OperatorConformance Subject NAMESPACE load_example",
    "testing.harness": "OperatorHarness",
    "testing.fakeapi": "FakeApi Review",
    "testing.clock": "FakeClock",
    "testing.serving": "serve",
}
"""Names that operators may rely on, by module; all others are internal."""
_LIBRARY: Final = "libs.common"
_SECTION: Final = re.compile(r"\n\n(Args|Attributes|Returns|Raises|Yields):\n")
_PRIVATE: Final = re.compile(r"\b_[A-Z][A-Z_]+\b")
_CODE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_ITEM: Final = re.compile(r"^    (\w+): ", re.MULTILINE)
_INTRODUCTION: Final = f"""\
Version {__version__}. The library is `libs.common` in this repository, and `{PACKAGE}` in the wheel
`slipway-operators`: `from {PACKAGE}.runtime import Controller` and
`from libs.common.runtime import Controller` import the same class.

[Write an operator outside of this repository](../howto/standalone-project.md) has examples. [The
runtime](../explanation/runtime.md) explains how it works, and lists [bugs of other operators that
it prevents](../explanation/runtime.md#bugs-of-other-operators-that-the-runtime-prevents).

Only the names on this page are public. Before 1.0, a new minor version may change them; a new patch
version does not. The [changelog](../../libs/common/CHANGELOG.md) lists every change. All other
modules and names can change at any time. Times without a unit are in seconds."""


def render_library() -> dict[Path, str]:
    """Render the page."""
    sections = [_INTRODUCTION, *(_render_module(name) for name in PUBLIC)]
    text = render_page(
        "Public API of the library", sections, origin=f"{GENERATOR} from libs/common"
    )
    return {PAGE: text}


def _render_module(module: str) -> str:
    tree = _parse(f"{_LIBRARY}.{module}")
    found = dict(_define(tree))
    origins = dict(_list_imports(tree))
    text = ast.get_docstring(tree) or ""
    parts = [f"## {module}", _join(text), *_CODE.findall(text)]
    for name in PUBLIC[module].split():
        home = tree if name in found else _parse(origins[name])
        parts.append(_render_name(name, home, *dict(_define(home))[name]))
    return "\n\n".join(parts)


def _render_name(name: str, home: ast.Module, node: ast.stmt, text: str) -> str:
    signature = _PRIVATE.sub("...", _sign(name, node))
    lines = [f"**`{_await(node)}{signature}`**" + (f": {_join(text)}" if text else "")]
    lines += _list_items(text)
    for part in node.body if isinstance(node, ast.ClassDef) else ():
        said = ast.get_docstring(part) if isinstance(part, _FUNCTION) else ""
        if isinstance(part, _FUNCTION) and said and not part.name.startswith(("_", "test_")):
            lines += [f"* `{_await(part)}.{_sign(part.name, part)}`: {_join(said)}"]
            lines += [f"  {item}" for item in _list_items(said)]
        elif isinstance(part, _FUNCTION) and part.name == "__init_subclass__":
            lines.append(f"* class arguments: `{_list_arguments(part)}`")
    lines += _list_aliases(" ".join(lines), home)
    return "\n\n".join([lines[0], "\n".join(lines[1:])]).rstrip()


def _list_aliases(shown: str, home: ast.Module) -> Iterator[str]:
    """Explain the types that are no public names of their own."""
    defined, origins = dict(_define(home)), dict(_list_imports(home))
    public = {each for names in PUBLIC.values() for each in names.split()}
    for name in sorted(set(re.findall(r"\b[A-Z]\w+", shown)) - public):
        origin = origins.get(name, "")
        found = dict(_define(_parse(origin))) if origin.startswith(_LIBRARY) else defined
        node, said = found.get(name, (home, ""))
        if isinstance(node, ast.TypeAlias):
            yield f"* `{ast.unparse(node)}`: {_join(said)}".removesuffix(": ")


def _await(node: ast.stmt) -> str:
    return "await " if isinstance(node, ast.AsyncFunctionDef) else ""


_FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def _sign(name: str, node: ast.stmt) -> str:
    """Return a name as it is called: with arguments, defaults and the result."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            names = [each.id for each in node.decorator_list if isinstance(each, ast.Name)]
            result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            return name + ("" if "property" in names else f"({_list_arguments(node)})") + result
        case ast.ClassDef():
            begin = [each for each in node.body if getattr(each, "name", "") == "__init__"]
            if begin and isinstance(begin[0], _FUNCTION):
                return f"{name}({_list_arguments(begin[0])})"
            fields = [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)]
            return f"{name}({', '.join(each for each in fields if 'ClassVar' not in each)})"
        case ast.AnnAssign() | ast.TypeAlias() | ast.Assign() if node.value is not None:
            return f"{name} = {ast.unparse(node.value)}"
    return name


def _list_arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return re.sub(r"^(self|cls)(, )?", "", ast.unparse(node.args))


def _list_items(text: str) -> list[str]:
    """Return the arguments, results and errors of a docstring as a list."""
    _, *sections = _SECTION.split(text)
    items = []
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        raises = "raises " if title == "Raises" else ""
        found = _ITEM.split(f"\n{body}")
        if title in ("Returns", "Yields") or len(found) == 1:
            items.append(f"* {title.lower()}: {_flatten(body)}")
            continue
        for name, said in zip(found[1::2], found[2::2], strict=True):
            items.append(f"* {raises}`{name}`: {_flatten(said.partition('\n\n')[0])}")
    return items


def _join(text: str) -> str:
    """Return the prose of a docstring as one paragraph, without lists and sections."""
    prose = _CODE.sub("", _SECTION.split(text)[0]).split("\n\n")
    return " ".join(_flatten(each) for each in prose if not each.lstrip().startswith("*")).rstrip()


def _flatten(text: str) -> str:
    return " ".join(text.split())


@cache
def _parse(module: str) -> ast.Module:
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None
    return ast.parse(Path(found.origin).read_text(encoding="utf-8"))


def _list_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.name, node.module


def _define(tree: ast.Module) -> Iterable[tuple[str, tuple[ast.stmt, str]]]:
    """Yield each name that a module defines, with its statement and its docstring."""
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, (node, ast.get_docstring(node) or "")
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.TypeAlias(name=ast.Name(id=name)):
                yield name, (node, _read_text(following))
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name, (node, _read_text(following))
            case _:
                pass


def _read_text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""

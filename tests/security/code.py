"""What operators may not do in code: start programs, run text, read without a limit. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.sbom.closure import find_modules

ROOT: Final = Path(__file__).resolve().parents[2]

_MODULES: Final = {
    "subprocess": "starts programs",
    "pty": "starts programs",
    "pickle": "runs what it decodes",
    "shelve": "runs what it decodes",
    "marshal": "runs what it decodes",
    "jinja2": "makes templates of text",
    "ctypes": "leaves the language",
    "telnetlib": "speaks in the clear",
    "ftplib": "speaks in the clear",
}
_CALLS: Final = {
    "eval": "runs text",
    "exec": "runs text",
    "compile": "runs text",
    "__import__": "loads by text",
    "os.system": "starts a shell",
    "os.popen": "starts a shell",
    "os.execv": "starts programs",
    "os.spawnv": "starts programs",
    "asyncio.create_subprocess_shell": "starts a shell",
    "asyncio.create_subprocess_exec": "starts programs",
    "yaml.load": "can make any object",
    "yaml.unsafe_load": "can make any object",
    "ssl._create_unverified_context": "trusts everybody",
    "tempfile.mktemp": "leaves a race for a file name",
    **dict.fromkeys(
        (
            *("yaml.safe_load", "yaml.safe_load_all", "yaml.full_load", "yaml.full_load_all"),
            *("yaml.load_all", "yaml.compose", "yaml.compose_all"),
            *("fastyaml.load", "fastyaml.load_all"),
        ),
        "composes any depth; use fastyaml.load_untrusted",
    ),
    **dict.fromkeys(
        ("gzip.decompress", "zlib.decompress", "bz2.decompress", "lzma.decompress", "gzip.open"),
        "expands to any size; use a decompressor with a limit",
    ),
    "zipfile.ZipFile": "expands to any size",
    "tarfile.open": "expands to any size",
    "urllib.request.urlopen": "reads a response of any size",
    "json.load": "raises RecursionError, which is no ValueError; use orjson.loads",
    "json.loads": "raises RecursionError, which is no ValueError; use orjson.loads",
}
_OWN_READERS: Final = ("kubeconfig", "publisher")
"""Objects of ours with a method `read` that reads no body."""
_CLIENTS: Final = frozenset(
    {"aiohttp", "httpx", "pulsar", "requests", "socket", "urllib.request", "urllib3"}
)
"""Modules by which a process reaches somebody."""


def find_dangers(source: str, name: str = "<text>") -> list[str]:
    """List what a module uses that runs text or programs; `# security: why` on the line waives."""
    lines = source.splitlines()
    return [
        f"{name}:{line}: {what}"
        for line, what in _walk(ast.parse(source))
        if "# security: " not in lines[line - 1]
    ]


def find_clients(source: str) -> set[str]:
    """Return the modules that a module imports by which it could reach an address."""
    found = {module for _, module in _imports(ast.parse(source))}
    return {each for each in _CLIENTS if any(_is_within(module, each) for module in found)}


def list_modules() -> list[Path]:
    """List the modules that processes of operators contain, without their tests."""
    mains = sorted((ROOT / "operators").rglob("__main__.py"))
    starts = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in mains]
    return sorted({path for start in starts for path in find_modules(start)})


def _walk(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for line, module in _imports(tree):
        for each, why in _MODULES.items():
            if _is_within(module, each):
                yield line, f"{module} {why}"
    origins = _list_origins(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Await) and _reads_all(node):
            yield node.lineno, "reads a body of any size; read it up to a limit"
        if isinstance(node, ast.Call):
            called = _resolve(ast.unparse(node.func), origins)
            if called in _CALLS:
                yield node.lineno, f"{called} {_CALLS[called]}"
            if called in ("Client", "client.Client") and not any(
                each.arg == "read_limit" for each in node.keywords
            ):
                yield node.lineno, "Client reads responses of any size; set read_limit"
            if any(each.arg == "shell" and _is_true(each.value) for each in node.keywords):
                yield node.lineno, f"{called} starts a shell"
            if any(each.arg == "verify" and _is_false(each.value) for each in node.keywords):
                yield node.lineno, f"{called} trusts everybody"


def _reads_all(node: ast.Await) -> bool:
    """Return whether a node reads a response, request or stream to its end, whatever its size."""
    called = node.value
    return (
        isinstance(called, ast.Call)
        and isinstance(called.func, ast.Attribute)
        and called.func.attr in {"read", "json", "text"}
        and not called.args
        and not ast.unparse(called.func.value).endswith(_OWN_READERS)
    )


def _list_origins(tree: ast.AST) -> dict[str, str]:
    """Return the module or function that each imported name stands for."""
    origins = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            origins.update({each.asname: each.name for each in node.names if each.asname})
        elif isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                origins[each.asname or each.name] = f"{node.module}.{each.name}"
    return origins


def _resolve(called: str, origins: Mapping[str, str]) -> str:
    first, dot, rest = called.partition(".")
    return f"{origins.get(first, first)}{dot}{rest}".removeprefix("libs.common.")


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _is_within(module: str, parent: str) -> bool:
    return module == parent or module.startswith(f"{parent}.")


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False

"""Write `protobuf.json`: the fields of built-in kinds by their numbers in protobuf.

The sources are `generated.proto` and `types.go` of the Go modules k8s.io/api and
k8s.io/apimachinery; nothing in the file is written by hand:

    python -m libs.common.testing.fakeapi.extract_protobuf ~/go/pkg/mod/k8s.io

A field is its name in JSON and its type: `string`, `bytes`, `int`, `bool`, `double` or a message;
`[` before it means a list, `{` a map, `+` fields that belong to the holder itself, and `?` a value
that counts even when it is zero.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from libs.common.testing.fakeapi.extract import GROUP_VERSIONS

type Messages = dict[str, dict[str, list[str]]]

_SCALARS: Final = {"int32": "int", "int64": "int", "uint32": "int", "uint64": "int"}
_PLAIN: Final = frozenset({"string", "bytes", "int", "bool", "double"})
_MESSAGE: Final = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD: Final = re.compile(
    r"^\s*(optional|repeated|required|map<string,)\s+([.\w]+)>?\s+(\w+) = (\d+);", re.MULTILINE
)
_STRUCT: Final = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_MEMBER: Final = re.compile(
    r'^\s*(?:\w+\s+)?(\*?)\S+\s+`json:"([^",]*)([^"]*)" protobuf:"\w+,(\d+),', re.MULTILINE
)
_META: Final = "apimachinery/pkg/apis/meta/v1"
_SHARED: Final = (_META, "apimachinery/pkg/api/resource", "apimachinery/pkg/util/intstr")


def main(modules: Path, target: Path) -> None:
    """Read the newest sources under a directory of modules and write them to the target."""
    text = json.dumps(build_table(modules), separators=(",", ":"), sort_keys=True)
    target.write_text(text + "\n")


def build_table(modules: Path) -> Messages:
    """Build the content of `protobuf.json`."""
    found: Messages = {}
    for folder in _list_folders(modules):
        found.update(_read(folder))
    return _reachable(found)


def _list_folders(modules: Path) -> Iterator[Path]:
    newest = {
        name: max(modules.glob(f"{name}@v0.*"), key=_version) for name in ("api", "apimachinery")
    }
    for shared in _SHARED:
        module, _, rest = shared.partition("/")
        yield newest[module] / rest
    for name in GROUP_VERSIONS:
        group, version = name.split("/")[1:] if name.startswith("apis/") else ("core", "v1")
        folder = newest["api"] / group.partition(".")[0] / version
        if (folder / "generated.proto").exists():
            yield folder


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path.name))


def _read(folder: Path) -> Iterator[tuple[str, dict[str, list[str]]]]:
    text = (folder / "generated.proto").read_text()
    match = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
    package = match[1] if match else ""
    members = {
        name: {
            number: (star, json_name, rest)
            for star, json_name, rest, number in _MEMBER.findall(body)
        }
        for source in folder.glob("*types.go")
        for name, body in _STRUCT.findall(source.read_text())
    }
    for name, body in _MESSAGE.findall(text):
        fields = {}
        for label, kind, field, number in _FIELD.findall(body):
            star, json_name, rest = members.get(name, {}).get(number, ("", field, ""))
            if "inline" in rest:
                mark = "+"
            else:
                mark = {"repeated": "[", "map<string,": "{"}.get(label, "?" if star else "")
            fields[number] = [json_name or field, mark + _resolve(kind, package)]
        yield _rename(f"{package}.{name}"), fields


def _resolve(kind: str, package: str) -> str:
    kind = _SCALARS.get(kind, kind)
    if kind in _PLAIN:
        return kind
    return _rename(kind.lstrip(".") if "." in kind else f"{package}.{kind}")


def _rename(name: str) -> str:
    """Return the name of a message as OpenAPI writes it."""
    return re.sub(r"^k8s\.io\.", "io.k8s.", name)


def _reachable(found: Messages) -> Messages:
    """Keep the messages that a request can contain: not lists, and nothing only they need."""
    roots = [name for name, fields in found.items() if _is_root(name, fields)]
    kept: Messages = {}
    while roots:
        name = roots.pop()
        if name in found and name not in kept:
            kept[name] = found[name]
            roots.extend(kind.lstrip("[{+?") for _, kind in found[name].values())
    return kept


def _is_root(name: str, fields: dict[str, list[str]]) -> bool:
    has_metadata = any(field == "metadata" for field, _ in fields.values())
    return (has_metadata and not name.endswith("List")) or name.endswith(".DeleteOptions")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).with_name("protobuf.json"))

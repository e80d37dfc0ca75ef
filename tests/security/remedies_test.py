"""No message of an operator, of its alerts or of the plugin advises to delete keys or data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tools.dev.operators import ROOT

_ADVICE: Final = re.compile(
    r"(?:^|[;,.:(] ?|\b(?:or|and|then|first) )(?:delete|remove|wipe|erase|purge) ([^;.:,)]+)",
    re.IGNORECASE,
)
_DATA: Final = re.compile(
    r"\b(it|them|secrets?|claims?|volumes?|disks?|snapshots?|instances?|machines?|clusters?"
    r"|subscriptions?|topics?|keys?|authorit\w+|certificates?|configmaps?|object|\w*volumes?"
    r"|\w*claims?|\w*snapshots?)\b|\{\}",
    re.IGNORECASE,
)
_HARMLESS: Final = re.compile(
    r"\b(ip(address)?claims?|(claims? (that hold them|to release it))|operations?|lease|spec\.\S+"
    r"|pods?|the (address|field|annotations?|tolerations?)|owner|label|node|\w+ service)\b",
    re.IGNORECASE,
)
EXCEPTIONS: Final = {
    # What messages name with a word that could be data.
    "remove what the message names": "fields of a spec",
    "; remove it there": "the reference to a disk, in a VirtualMachine of the user",
    "remove it from spec.volumes": "the reference to a volume",
    "remove the addresses from one of the pools": "addresses of the spec",
    "spec.loadBalancerIP is not supported; remove it": "a field of a Service",
    "remove them, or use a Network of backend Multus": "fields of a spec",
    "Delete it first: kubectl delete": "force-finalize is for objects that are being deleted",
    "on which the JVM would listen; delete it": "a file in /tmp of a container",
    "; remove it and restart the JVM": "another agent of the JVM",
    "does not end the migration; delete {}": "a VirtualMachineInstanceMigration",
    "remove it with `etcdctl member remove`": "a member that is no node of the cluster",
    "set spec.snapshotClassName and delete {}": "a failed snapshot; its claim still exists",
    "remove its annotation {} to end the wait": "an annotation of a pool",
    "or remove annotation {} to create a new disk": "an annotation; the disk is gone",
    "remove it from watch.namespaces": "a name in the values of a chart",
    "and delete this claim": "an IPClaim with another address than the cluster uses",
    "remove one of them": "an entry in a list of the values of a chart",
    # What is no advice.
    "some GitOps tools": "a description",
    "or Delete to continue without a snapshot": "a value of a field",
    "create and delete the machines of nodes": "the reason of a permission",
    "remove member {} of etcd": "the name of an action",
    "create, delete or seek": "what the operator cannot do",
    "and delete them after their time to live": "the reason of a permission",
    "delete one run of a machine": "the reason of a permission",
    "the waiver of": "a message of the lint of CRDs",
}
"""Parts of messages that name something else, with what it is."""


def find_faults(text: str) -> list[str]:
    """Return the advice in a text to delete what may hold keys or data."""
    if text == "delete {}" or any(part.lower() in text.lower() for part in EXCEPTIONS):
        return []
    found = [match[0] for match in _ADVICE.finditer(" ".join(text.split()))]
    return [each for each in found if _DATA.search(each) and not _HARMLESS.search(each)]


def read_messages(path: Path) -> Iterator[str]:
    """Yield the texts of a module, without docstrings of modules, classes and functions."""
    tree = ast.parse(path.read_text())
    known: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            known.update(id(each.value) for each in node.body[:1] if isinstance(each, ast.Expr))
        elif isinstance(node, ast.JoinedStr):
            known.update(map(id, node.values))
            parts = [
                str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values
            ]
            yield "".join(parts)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in known
        ):
            yield node.value


def list_sources() -> list[Path]:
    """Return the modules whose texts users read, and the templates of the charts."""
    folders = ("operators", "kubectl_slipway", "libs/common", "libs/contracts", "slipway_handler")
    modules = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    kept = [
        path for path in modules if not re.search(r"_test\.py$|/testing/|/fake|/states/", str(path))
    ]
    templates = [*(ROOT / "helm").rglob("*.tpl"), *(ROOT / "helm").rglob("NOTES.txt")]
    return [*kept, *templates]


def test_no_message_advises_to_delete_what_holds_keys_or_data() -> None:
    faults = []
    sources = list_sources()
    assert len(sources) > 500, "the modules were not found"
    for path in sources:
        texts = read_messages(path) if path.suffix == ".py" else path.read_text().splitlines()
        found = [fault for text in texts for fault in find_faults(text)]
        faults += [f"{path.relative_to(ROOT)}: {fault}" for fault in found]
    assert faults == []


@pytest.mark.parametrize(
    "text",
    [
        "Secret a is unknown; delete it",
        "Set spec.adopt, or delete the claim.",
        "Delete the Instances that name the Network.",
        "PersistentVolumeClaim {} is foreign; remove {}",
        "the keys are lost; delete the Secret of the authorities and wait",
        "delete the cluster and create it with another podCidr",
        "consume or delete the subscriptions",
    ],
)
def test_such_advice_is_found(text: str) -> None:
    assert find_faults(text)


@pytest.mark.parametrize("text", ["Delete the IPClaim.", "remove the field", "delete the pods"])
def test_other_advice_is_allowed(text: str) -> None:
    assert not find_faults(text)


def test_each_exception_is_still_in_a_message() -> None:
    texts = "\n".join(
        text.lower()
        for path in list_sources()
        for text in (read_messages(path) if path.suffix == ".py" else [path.read_text()])
    )
    assert [part for part in EXCEPTIONS if part.lower() not in texts] == []

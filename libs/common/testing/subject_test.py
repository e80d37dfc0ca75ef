"""A subject reads from the controllers and the examples what is not given."""

from __future__ import annotations

from pathlib import Path

from libs.common.kinds import CONFIG_MAP
from libs.common.testing.conformance import Subject, load_example
from libs.common.testing.widget import OPERATOR, build_widget


def test_children_and_permissions_default_to_the_declared_writes() -> None:
    subject = Subject(OPERATOR, crds=(), objects=lambda: (build_widget(),), change={})

    assert subject.children == (CONFIG_MAP,)
    assert subject.rules == OPERATOR.rules()


def test_objects_of_an_example_are_in_the_namespace_of_the_suite(tmp_path: Path) -> None:
    folder = tmp_path / "examples"
    folder.mkdir()
    text = "kind: Widget\nmetadata: {name: a}\n---\nkind: Widget\nmetadata: {name: b}\n---\n"
    (folder / "two.yaml").write_text(text)
    test_file = str(tmp_path / "operator_test.py")

    namespaced, cluster = load_example(test_file, "two"), load_example(test_file, "two", "")

    assert [each["metadata"] for each in namespaced()] == [
        {"namespace": "default", "name": "a"},
        {"namespace": "default", "name": "b"},
    ]
    assert [each["metadata"] for each in cluster()] == [{"name": "a"}, {"name": "b"}]

"""The fast way to read and write YAML is the safe one, and says the same as the slow one."""

from __future__ import annotations

import pytest
import yaml

from libs.common import fastyaml

TEXT = "a: [1, 2.5, true, null, 2026-01-01]\nb: |\n  two\n  lines\nc: {d: 'e'}\n"


def test_document_is_read_as_pyyaml_reads_it() -> None:
    assert fastyaml.load(TEXT) == yaml.safe_load(TEXT)
    assert fastyaml.load("") is None


def test_stream_is_read_without_its_empty_documents() -> None:
    assert list(fastyaml.load_all(f"---\n---\n{TEXT}---\nz: 1\n---\n")) == [
        yaml.safe_load(TEXT),
        {"z": 1},
    ]


def test_what_is_written_is_read_again_in_its_order() -> None:
    value = {"z": 1, "a": ["x", {"y": "1"}]}
    assert fastyaml.dump(value) == "z: 1\na:\n- x\n- y: '1'\n"
    assert fastyaml.load(fastyaml.dump(value)) == value


@pytest.mark.parametrize(
    "text", ["a: !!python/object/apply:os.getcwd []", "a: [", "a: 1\n---\nb: 2"]
)
def test_text_that_is_no_plain_document_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        fastyaml.load(text)


def test_stream_that_asks_for_objects_is_refused() -> None:
    with pytest.raises(yaml.YAMLError):
        list(fastyaml.load_all("a: 1\n---\n!!python/name:os.getcwd\n"))

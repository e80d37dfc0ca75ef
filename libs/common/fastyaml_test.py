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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(f"a: {'[' * 30_000}{']' * 30_000}", "deeper|nesting depth", id="brackets"),
        pytest.param("{a: " * 30_000, "deeper|nesting depth", id="braces"),
        pytest.param(f"{'- ' * 30_000}x", "deeper", id="dashes"),
        pytest.param(
            "\n".join(f"{' ' * level}a:" for level in range(2_000)), "deeper", id="indentation"
        ),
        pytest.param(
            "a0: &a0 []\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}]\n" for n in range(200)),
            "deeper",
            id="chain of aliases",
        ),
        pytest.param(
            f"a: &a {'x' * 20_000}\n" + "".join(f"k{n}: *a\n" for n in range(10_000)),
            "expands",
            id="aliases of a long text",
        ),
        pytest.param(
            "a0: &a0 {k: v}\n"
            + "".join(f"a{n + 1}: &a{n + 1} {{<<: [{f'*a{n}, ' * 20}]}}\n" for n in range(8)),
            "expands",
            id="merged maps",
        ),
        pytest.param("a: &a [*a]", "no complete value", id="value that contains itself"),
        pytest.param(
            "".join(f"? {n * (2**61 - 1)}\n: 1\n" for n in range(1, 9_000)),
            "64 bits",
            id="integers with one hash",
        ),
        pytest.param(f"a: !!int 1{':1' * 400_000}", "64 bits", id="sexagesimal integer"),
        pytest.param(f"a: {'x' * fastyaml.LONGEST}", "longer", id="long text"),
        pytest.param("--- a\n" * 60_000, "100000 values", id="many documents"),
        pytest.param("---\n" * 60_000, "100000 values", id="many empty documents"),
        pytest.param(f"[{'a,' * 100_000}]", "100000 values", id="many values"),
        pytest.param(f"[{'[],' * 100_000}]", "100000 values", id="many lists"),
    ],
)
def test_text_of_others_that_would_exhaust_the_process_is_refused(text: str, words: str) -> None:
    with pytest.raises(yaml.YAMLError, match=words):
        fastyaml.load_untrusted(text)


@pytest.mark.parametrize(
    "value", ["!!bool maybe", "!!int ''", "!!timestamp soon", f"!!float {'1:' * 400}1.5"]
)
def test_value_that_does_not_fit_its_tag_is_an_error_of_the_text(value: str) -> None:
    with pytest.raises(yaml.YAMLError):
        fastyaml.load_untrusted(f"a: {value}")


def test_text_of_others_within_the_limits_is_read_with_its_aliases() -> None:
    nested = f"{'[' * (fastyaml.DEEPEST - 1)}{']' * (fastyaml.DEEPEST - 1)}"
    text = f"a: &a {{b: 1}}\nc: *a\nd: {{<<: *a, e: 2}}\n---\n---\n{nested}"

    first, second = fastyaml.load_untrusted(text)

    assert first == {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}
    assert str(second) == nested

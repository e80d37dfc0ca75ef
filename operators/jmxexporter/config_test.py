"""Which configurations reach a pod."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common import fastyaml
from operators.jmxexporter.api.v1alpha1 import ConfigSource
from operators.jmxexporter.config import LIMIT, find_problem, read_config
from operators.jmxexporter.reasons import Reason

SOURCE = ConfigSource(config_map_name="jmx-config", config_map_key="config.yaml")


def _nest_merges(number: int) -> str:
    """Build maps that each include the one before: time and memory grow with the square."""
    lines = [f"{each}: &{each} {{<<: *{each - 1},k{each}: }}" for each in range(1, number)]
    return "\n".join(["0: &0 {}", *lines])


def _multiply_aliases(levels: int) -> str:
    """Build lists that each contain the one before ten times."""
    lines = [f"{each}: &{each} [{f'*{each - 1},' * 10}]" for each in range(1, levels)]
    return "\n".join(["0: &0 [x]", *lines])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rules:\n- pattern: .*\n",
        "lowercaseOutputName: true\nwhitelistObjectNames: ['java.lang:*']\n",
        "rules:\n- pattern: a<b=(.+)>\n  name: x_$1\n  labels: {b: $2}\n  type: GAUGE\n",
    ],
)
def test_configuration_of_the_exporter_is_taken(text: str) -> None:
    assert find_problem(text) == ""


def test_configuration_is_read_once_however_many_passes_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long one takes a while, in which nobody else is served."""
    read: list[str] = []

    def parse(text: str) -> list[object]:
        read.append(text)
        return []

    monkeypatch.setattr(fastyaml, "load_untrusted", parse)
    config_map = {"data": {"config.yaml": "rules: [] # read once"}}

    first, second = (read_config(SOURCE, config_map) for _ in range(2))

    assert first == second and first.reason is None
    assert len(read) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "not a mapping"),
        ("a: b: c", "not YAML"),
        ("!!python/object/apply:os.system [id]", "not YAML"),
        ("jmxUrl: service:jmx:x", "jmxUrl"),
        ("httpServer: {}", "httpServer"),
        ("lowercaseOutputName: 1", "true or false"),
        ("rules: {}", "must be a list"),
        ("rules: [x]", "rules[0] must be a mapping"),
        ("rules: [{name: x}]", "rules[0] needs a pattern"),
        ("rules: [{pattern: x, labels: {}}]", "labels need a name"),
        (f"# {'x' * LIMIT}", "longer than"),
        ("a: !!bool maybe", "a value does not fit its tag"),
        ("a: !!int ''", "a value does not fit its tag"),
        (f"a: !!float {'1:' * 40_000}1.5", "a value does not fit its tag"),
        ("a: \x00", "control character"),
        (f"a: {'[' * 200}{']' * 200}", "nested deeper"),
        ("a: " + "[" * 30_000, "nesting depth"),
        (_nest_merges(3_000), "nested deeper than"),
        (_multiply_aliases(8), "expands to more than"),
        ("rules: []\n---\nrules: []", "2 documents"),
    ],
)
def test_mistake_is_named_with_its_place(text: str, words: str) -> None:
    assert words in find_problem(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ssl: false", "ssl has no effect"),
        ("startDelaySeconds: 30", "startDelaySeconds has no effect"),
        ("{username: u, password: p}", "password has no effect"),
        ("attrNameSnakeCase: true", "attrNameSnakeCase is unknown and has no effect"),
        ("rulse: []", "rulse is unknown and has no effect"),
        ("rules: [{pattern: x, nmae: y}]", "rules[0].nmae is unknown and has no effect"),
    ],
)
def test_key_that_the_exporter_ignores_is_only_a_warning(text: str, words: str) -> None:
    config = read_config(SOURCE, {"data": {"config.yaml": text}})

    assert (config.reason, config.message) == (None, "")
    assert words in config.warning


@given(st.text())
def test_any_text_has_an_answer(text: str) -> None:
    config = read_config(SOURCE, {"data": {"config.yaml": text}})

    assert config.hash and (config.reason is None) == (config.message == "")


def test_configuration_in_another_encoding_is_told() -> None:
    config = read_config(SOURCE, {"binaryData": {"config.yaml": "//5y"}})

    assert config.reason is Reason.CONFIG_MISSING
    assert "is binary data; save it as UTF-8 text" in config.message


@pytest.mark.parametrize("held", [None, {}, {"data": {"other": "x"}}])
def test_missing_configuration_is_told(held: dict[str, object] | None) -> None:
    config = read_config(SOURCE, held)

    assert config.reason is Reason.CONFIG_MISSING
    assert "jmx-config" in config.message


@pytest.mark.parametrize(
    "text",
    ["a: b: secret-password", "key: [secret-password", "%secret-password", "a: *secret-password"],
)
def test_error_of_a_configuration_quotes_nothing_of_it(text: str) -> None:
    problem = find_problem(text)

    assert problem.startswith("not YAML: line ") or problem == "an alias names no complete value"
    assert "secret" not in problem

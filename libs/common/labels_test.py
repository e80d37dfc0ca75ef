"""Label selectors: what matches here is what the API server selects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.client import Client
from libs.common.kinds import CONFIG_MAP, Manifest, build_object
from libs.common.labels import matches_selector, render_selector
from libs.common.testing.fakeapi.selectors import parse_labels

NAMES = st.sampled_from(["a", "example.com/b", "c"])
TEXTS = st.sampled_from(["", "x", "y", "z-1"])
RULES = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        NAMES,
        st.sampled_from(["In", "NotIn"]),
        st.lists(TEXTS, min_size=1, max_size=3, unique=True),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        NAMES,
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
SELECTORS = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(NAMES, TEXTS, max_size=2),
        "matchExpressions": st.lists(RULES, max_size=3),
    },
)
LABELS = st.dictionaries(NAMES, TEXTS)


@given(SELECTORS, LABELS)
def test_match_agrees_with_the_rendered_text(
    selector: dict[str, Any], labels: dict[str, str]
) -> None:
    selects = parse_labels(render_selector(selector))

    assert matches_selector(selector, labels) is (selects is None or selects(labels))


@pytest.mark.parametrize("selector", [{}, {"matchLabels": None}, {"matchExpressions": None}])
def test_empty_selector_matches_everything(selector: dict[str, Any]) -> None:
    assert matches_selector(selector, {})
    assert render_selector(selector) == ""


def test_unknown_operator_matches_nothing() -> None:
    selector = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}

    assert not matches_selector(selector, {"a": "2"})
    assert not matches_selector({"matchExpressions": [{"key": "a"}]}, {"a": "2"})
    with pytest.raises(ValueError, match="Gt"):
        render_selector(selector)


REAL_LABELS: list[dict[str, str]] = [{}, {"a": "x"}, {"a": ""}, {"a": "y", "b": "x"}, {"b": "y"}]
REAL_SELECTORS: list[Manifest] = [
    {"matchLabels": {"a": "x"}},
    {"matchLabels": {"a": ""}},
    {"matchLabels": {"a": "y", "b": "x"}},
    {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]},
    {"matchExpressions": [{"key": "a", "operator": "In", "values": [""]}]},
    {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["x"]}]},
    {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["", "y"]}]},
    {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]},
    {
        "matchLabels": {"b": "x"},
        "matchExpressions": [{"key": "a", "operator": "Exists"}],
    },
]


@pytest.mark.apiserver
async def test_real_server_selects_what_matches(kube_client: Client, kube_namespace: str) -> None:
    for number, labels in enumerate(REAL_LABELS):
        await kube_client.create(
            CONFIG_MAP,
            build_object(CONFIG_MAP, f"m{number}", kube_namespace, metadata={"labels": labels}),
        )
    for selector in REAL_SELECTORS:
        listing = await kube_client.list(
            CONFIG_MAP, kube_namespace, label_selector=render_selector(selector)
        )

        selected = {item["metadata"]["name"] for item in listing.items}
        matching = {
            f"m{number}"
            for number, labels in enumerate(REAL_LABELS)
            if matches_selector(selector, labels)
        }
        assert selected == matching, selector

"""Requests and reports as text, and files as Java reads them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.jmxexporter.injector.delivery import parse_properties, render_properties
from operators.jmxexporter.injector.messages import (
    MESSAGE_LIMIT,
    Action,
    JvmReport,
    Report,
    Request,
    State,
)
from operators.jmxexporter.injector.scrape import parse_answer

reports = st.builds(
    JvmReport,
    pid=st.integers(1, 2**22),
    start=st.integers(0, 2**63),
    main=st.text(max_size=300),
    state=st.sampled_from(State),
    reason=st.sampled_from(["", "PortInUse"]),
    message=st.text(max_size=900),
    config_hash=st.text("0123456789abcdef", max_size=64),
)


@given(st.lists(reports, max_size=12))
def test_report_fits_into_a_termination_message(jvms: list[JvmReport]) -> None:
    text = Report(tuple(jvms)).render()

    assert len(text.encode()) <= MESSAGE_LIMIT
    read = Report.parse(text)
    assert [jvm.pid for jvm in read.jvms] == [jvm.pid for jvm in jvms[: len(read.jvms)]]


@pytest.mark.parametrize("text", ["", "[]", "1", '{"jvms": [{}]}', "Killed", '{"jvms": 1}'])
def test_text_that_is_no_report_is_an_error(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Report.parse(text)


def test_request_survives_the_way() -> None:
    request = Request(id="u-1", action=Action.STOP, port=1234, main_class="Shop$")

    assert Request.parse(request.render()) == request


def test_field_of_a_later_release_is_passed_over() -> None:
    assert Request.parse('{"id":"u","action":"Ensure","later":1}').action is Action.ENSURE


@given(st.dictionaries(st.text("abc", min_size=1), st.text(min_size=1)))
def test_properties_survive_the_way(values: dict[str, str]) -> None:
    values = {name: f"x{value}" for name, value in values.items()}

    assert parse_properties(render_properties(values)) == values


def test_properties_are_read_as_java_writes_them() -> None:
    content = b"#Sat Nov 21\nmessage=a\\: b\\\\c\\u00E9\\n\\=\n"

    assert parse_properties(content) == {"message": "a: b\\cé\n="}


def test_page_of_another_server_is_no_guard() -> None:
    assert parse_answer("http_requests_total 1\n") == {}


def test_hash_that_is_none_is_left_out() -> None:
    text = "id=u-1\nconfigHash=ab\nversion=1.6.0\nlastScrapeStatus=200\n"

    assert parse_answer(text) == {"id": "u-1", "version": "1.6.0", "lastScrapeStatus": "200"}


@pytest.mark.parametrize(
    "reported",
    [{"port": 70_000}, {"port": "9400"}, {"pid": -1}, {"main": "x" * 300}, {"uid": None}],
)
def test_report_that_does_not_fit_into_a_status_is_none(reported: dict[str, object]) -> None:
    """A process of the pod can write it, and one pod must not spoil the status of all."""
    jvm = {"pid": 1, "state": "Serving", "port": 9400}

    assert Report.parse(json.dumps({"jvms": [jvm]})).jvms
    with pytest.raises(ValueError, match="not a report"):
        Report.parse(json.dumps({"jvms": [{**jvm, **reported}]}))


@pytest.mark.parametrize("text", ["[]", "1", '{"action": "Ensure", "id": 5}'])
def test_text_that_is_no_request_is_told_by_one_error(text: str) -> None:
    with pytest.raises(ValueError, match="no"):
        Request.parse(text)


def test_report_of_what_is_no_jvm_is_told_by_one_error() -> None:
    with pytest.raises(ValueError, match="not an object"):
        Report.parse('{"jvms": [1]}')

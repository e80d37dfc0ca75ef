"""Tests of Events as manifests."""

from datetime import UTC, datetime, timedelta, timezone

from libs.common.event_manifest import (
    NOTE_LIMIT,
    Reporter,
    build_event,
    build_series,
    render_micro_time,
)
from libs.common.kinds import NODE, POD, Manifest, key_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
REPORTER = Reporter("podset", "podset-0")
WEB: Manifest = {"metadata": {"namespace": "shop", "name": "web", "uid": "u1"}}


def build(note: str = "Created it.", subject: Manifest = WEB, reason: str = "Created") -> Manifest:
    return build_event(REPORTER, POD, subject, "Normal", reason, note, NOON)


def test_event_has_what_the_api_server_asks_for() -> None:
    event = build()

    assert key_of(event).namespace == "shop"
    assert key_of(event).name.startswith("web.")
    assert event["eventTime"] == "2026-01-01T12:00:00.000000Z"
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "shop",
        "name": "web",
        "uid": "u1",
    }
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Created", "Reconcile")
    assert (event["reportingController"], event["reportingInstance"]) == ("podset", "podset-0")


def test_name_follows_from_the_content_and_not_from_time_or_instance() -> None:
    later = build_event(
        Reporter("podset", "podset-1"),
        POD,
        WEB,
        "Normal",
        "Created",
        "Created it.",
        NOON + timedelta(days=1),
    )

    assert key_of(later) == key_of(build())
    assert key_of(build("Other.")) != key_of(build())
    assert key_of(build(reason="Other")) != key_of(build())
    other_life = {"metadata": WEB["metadata"] | {"uid": "u2"}}
    assert key_of(build(subject=other_life)) != key_of(build())


def test_event_of_an_object_without_namespace_lives_in_the_default_one() -> None:
    node: Manifest = {"metadata": {"name": "n1"}}
    event = build_event(REPORTER, NODE, node, "Warning", "Full", "Full.", NOON)

    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["regarding"]


def test_name_of_a_long_object_fits() -> None:
    subject: Manifest = {"metadata": {"namespace": "shop", "name": "a" * 235 + "." + "b" * 17}}

    name = build(subject=subject)["metadata"]["name"]
    assert len(name) <= 253
    assert ".." not in name


def test_note_is_cut_to_the_bytes_that_the_server_takes() -> None:
    note = build("ä" * 600)["note"]

    assert len(note.encode()) <= NOTE_LIMIT
    assert note.endswith("ä...")
    assert build("x" * NOTE_LIMIT)["note"] == "x" * NOTE_LIMIT


def test_note_keeps_no_secret() -> None:
    assert "canary" not in build("Failed: password=canary-1")["note"]


def test_related_object_is_referenced_by_its_own_kind() -> None:
    related: Manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "d", "uid": "u3"},
    }
    event = build_event(REPORTER, POD, WEB, "Normal", "R", "N.", NOON, related=related)

    assert event["related"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": "shop",
        "name": "d",
        "uid": "u3",
    }
    assert key_of(event) != key_of(build_event(REPORTER, POD, WEB, "Normal", "R", "N.", NOON))


def test_series_counts_two_at_least() -> None:
    assert build_series(1, NOON)["count"] == 2
    assert build_series(5, NOON)["count"] == 5


def test_times_are_in_utc() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=2)))

    assert render_micro_time(east) == "2026-01-01T12:00:00.000000Z"

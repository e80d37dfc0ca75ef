"""Tests of the recorder against an API server over HTTP."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from libs.common.client import Client
from libs.common.events import EventRecorder
from libs.common.kinds import EVENT, POD, Manifest, key_of
from libs.common.metrics import Metrics
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import until

WEB: Manifest = {"metadata": {"namespace": "default", "name": "web", "uid": "u1"}}


class Stage:
    """A recorder, and what it needs."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.clock = FakeClock()
        self.client = Client(api.config)
        self.metrics = Metrics(process=False)
        self.recorder = self.build_recorder("podset-0")

    def build_recorder(self, instance: str) -> EventRecorder:
        return EventRecorder(
            self.client, "podset", instance, metrics=self.metrics, clock=self.clock
        )

    def say(self, note: str = "Created pod web-0.", subject: Manifest = WEB) -> None:
        self.recorder.event(POD, subject, "Normal", "Created", note)

    async def written(self) -> list[Manifest]:
        """Let the recorder finish, its waits included, and return the Events."""
        idle = asyncio.ensure_future(self.recorder.wait_idle())
        while not idle.done():
            if self.clock.next_due() is not None and self.clock.next_due() == self._retry_wait():
                self.clock.advance(self.clock.next_due() or 0)
            await asyncio.sleep(0.001)
        return self.api.objects(EVENT)

    def _retry_wait(self) -> float | None:
        due = self.clock.next_due()
        return due if due is not None and due <= 2.0 else None

    def counted(self, result: str) -> float:
        return self.metrics.value("operator_events_total", result=result) or 0


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


@pytest.fixture
async def stage(api: FakeApi) -> AsyncIterator[Stage]:
    stage = Stage(api)
    yield stage
    api.faults.clear()
    await stage.recorder.close(timeout=0.05)
    await stage.client.close()


def count_of(event: Manifest) -> int:
    return int((event.get("series") or {}).get("count") or 1)


async def test_event_is_written_in_the_background(stage: Stage) -> None:
    stage.say()
    assert stage.api.objects(EVENT) == []
    events = await stage.written()

    assert [event["note"] for event in events] == ["Created pod web-0."]
    assert events[0]["regarding"]["name"] == "web"
    assert stage.counted("created") == 1


async def test_equal_events_become_one_with_a_count(stage: Stage) -> None:
    stage.say()
    await stage.written()
    mark = stage.api.mark()
    stage.say()
    events = await stage.written()

    assert [count_of(event) for event in events] == [2]
    assert len(stage.api.writes(since=mark)) == 1


async def test_many_repetitions_are_written_once_a_minute_with_all_counted(stage: Stage) -> None:
    stage.say()
    await stage.written()
    stage.say()
    await stage.written()
    mark = stage.api.mark()
    for _ in range(50):
        stage.say()
        await asyncio.sleep(0)
    assert stage.api.writes(since=mark) == []

    stage.clock.advance(60)
    events = await stage.written()
    assert [count_of(event) for event in events] == [52]
    assert len(stage.api.writes(since=mark)) == 1


async def test_burst_before_the_first_write_is_one_write(stage: Stage) -> None:
    for _ in range(5):
        stage.say()
    events = await stage.written()

    assert [count_of(event) for event in events] == [5]
    assert len(stage.api.writes(kind=EVENT)) == 1


async def test_process_that_begins_anew_counts_on(stage: Stage) -> None:
    stage.say()
    await stage.written()
    for life in range(3):
        stage.recorder = stage.build_recorder(f"podset-{life}")
        stage.clock.advance(1)
        stage.say()
        await stage.written()

    assert [count_of(event) for event in stage.api.objects(EVENT)] == [4]
    methods = {request.method for request in stage.api.requests}
    assert methods == {"POST", "PATCH"}, "the rights of the operator are no more than these"


async def test_lost_response_does_not_count_twice(stage: Stage) -> None:
    stage.api.fail("POST", EVENT, lost_response=True)
    stage.say()

    assert [count_of(event) for event in await stage.written()] == [1]


async def test_event_that_the_server_forgot_is_made_anew(stage: Stage) -> None:
    stage.say()
    (event,) = await stage.written()
    stage.api.delete(EVENT, key_of(event))
    stage.clock.advance(3600)
    stage.say()
    stage.say()
    (again,) = await stage.written()

    assert count_of(again) in (1, 2)
    assert again["eventTime"] > event["eventTime"]


async def test_server_error_is_tried_again(stage: Stage) -> None:
    stage.api.fail("POST", EVENT, status=500, times=2)
    stage.say()

    assert len(await stage.written()) == 1
    assert stage.counted("failed") == 0


async def test_failed_write_is_retried_only_after_a_pause(stage: Stage) -> None:
    fault = stage.api.fail("POST", EVENT, status=500, times=1)
    stage.say()
    await until(lambda: fault.hits and stage.clock.next_due() is not None, "the recorder waits")
    before = stage.api.objects(EVENT)
    stage.clock.advance(stage.clock.next_due() or 0.0)
    await stage.recorder.wait_idle()

    assert before == []
    assert len(stage.api.objects(EVENT)) == 1


async def test_event_that_expires_while_it_is_counted_is_written_again(stage: Stage) -> None:
    """The create finds it, and then it is deleted: nothing is left to count on."""
    stage.say()
    (event,) = await stage.written()
    stage.recorder = stage.build_recorder("podset-1")
    stage.api.fail("PATCH", EVENT, status=404)
    stage.clock.advance(1)
    stage.say()
    await stage.written()

    assert [count_of(each) for each in stage.api.objects(EVENT)] == [2]
    assert stage.counted("failed") == 0
    assert event["note"] == "Created pod web-0."


@pytest.mark.parametrize("status", [403, 422, 500])
async def test_refused_event_is_dropped_and_the_next_one_is_not(stage: Stage, status: int) -> None:
    fault = stage.api.fail("POST", EVENT, status=status, times=None)
    stage.say("One.")
    await stage.written()
    fault.release()
    stage.say("Two.")

    assert [event["note"] for event in await stage.written()] == ["Two."]
    assert stage.counted("failed") == 1


async def test_recorder_never_raises(stage: Stage) -> None:
    stage.recorder.event(POD, {"metadata": {}}, "Normal", "Broken", "No name.")
    stage.recorder.event(POD, {}, "Normal", "Broken", "No metadata.")

    assert stage.counted("dropped") == 2


async def test_object_with_very_many_different_events_is_limited(stage: Stage) -> None:
    other: Manifest = {"metadata": {"namespace": "default", "name": "other", "uid": "u2"}}
    for number in range(100):
        stage.say(f"Note {number}.")
    stage.say("Other.", other)
    events = await stage.written()

    assert len(events) == 26, "a burst of 25, and what is said of another object"
    assert stage.counted("dropped") == 75

    stage.clock.advance(301)
    stage.say("Later.")
    assert len(await stage.written()) == 27


async def test_queue_is_bounded_while_the_server_hangs(stage: Stage) -> None:
    hang = stage.api.hang("POST", EVENT)
    for number in range(1100):
        subject: Manifest = {"metadata": {"namespace": "default", "name": f"w{number}"}}
        stage.say("Created.", subject)

    assert stage.counted("dropped") == 100
    hang.release()


async def test_close_writes_what_is_waiting(stage: Stage) -> None:
    stage.say()
    await stage.written()
    for _ in range(3):
        stage.say()
        await asyncio.sleep(0)
    stage.say("Stopping.")
    await stage.recorder.close()

    events = {event["note"]: count_of(event) for event in stage.api.objects(EVENT)}
    assert events == {"Created pod web-0.": 4, "Stopping.": 1}
    stage.say("Too late.")
    assert stage.counted("dropped") == 1


async def test_close_is_bounded_while_the_server_hangs(stage: Stage) -> None:
    stage.api.hang("POST", EVENT)
    stage.say()
    await stage.recorder.close(timeout=0.05)

    assert stage.api.objects(EVENT) == []


async def test_close_without_events_is_nothing(stage: Stage) -> None:
    await stage.recorder.close()

    assert list(stage.api.requests) == []


async def test_abandoned_recorder_writes_nothing_more(stage: Stage) -> None:
    stage.say()
    await stage.recorder.abandon()
    stage.say("Created pod web-1.")
    # A task that was left would run now.
    for _ in range(20):
        await asyncio.sleep(0)

    assert list(stage.api.requests) == []
    assert stage.counted("dropped") == 1

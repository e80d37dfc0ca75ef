from __future__ import annotations

from lab.sweep.triggers import Counters, Trigger, common_triggers
from lab.sweep.wire import Call
from lab.sweep.workload import load_workloads

CREATE = Call("create", "", "pods", "ns", "web-pod-0")


def test_same_write_is_counted_within_its_phase() -> None:
    counters = Counters()

    first = counters.name_write("create", CREATE)
    second = counters.name_write("create", CREATE)
    later = counters.name_write("grow", CREATE)

    assert (first.occurrence, second.occurrence, later.occurrence) == (1, 2, 1)


def test_other_write_in_between_changes_no_name() -> None:
    counters, alone = Counters(), Counters()
    counters.name_write("create", Call("create", "", "pods", "ns", "web-pod-1"))

    assert counters.name_write("create", CREATE) == alone.name_write("create", CREATE)


def test_write_and_event_of_one_object_are_two_moments() -> None:
    counters = Counters()
    write = counters.name_write("create", Call("delete", "", "pods", "ns", "a"))
    event = counters.name_event("create", "DELETED", "pods", "a")

    assert write != event


def test_moments_that_one_run_lacks_are_left_out_in_order() -> None:
    a, b, c = (Trigger("write", "p", "create", "pods", name) for name in "abc")

    assert common_triggers([[c, a, b], [a, c]]) == [c, a]
    assert common_triggers([]) == []


def test_trigger_survives_a_replay_file() -> None:
    trigger = Trigger("event", "grow", "DELETED", "pods", "a", 3)

    assert Trigger.from_json(trigger.to_json()) == trigger


def test_moments_know_children_whose_names_may_differ_by_their_number() -> None:
    strict, rolling = load_workloads("podset")[:2]

    assert strict.name_in_moments("trial-7-web-0", "trial-7") == "<namespace>-web-0"
    assert rolling.name_in_moments("web-0", "trial-7") == rolling.name_in_moments("web-1", "x")

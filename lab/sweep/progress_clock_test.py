from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.sweep.progress_clock import Meter, ProgressClock, Waits, read_waits


class Machine:
    """Play a machine whose processes wait for a CPU as a test says."""

    def __init__(self) -> None:
        self.at = 100.0
        self.waits: dict[int, dict[int, int]] = {1: {1: 0, 11: 0}, 2: {2: 0}}

    def build_pace(self) -> ProgressClock:
        return ProgressClock(lambda: list(self.waits), clock=lambda: self.at, read=self.read)

    def read(self, pid: int) -> Waits:
        return dict(self.waits[pid])

    def pass_by(self, seconds: float, **waited: float) -> None:
        """Let time pass in which threads, such as `t11`, waited for so many seconds."""
        self.at += seconds
        for threads in self.waits.values():
            for thread in threads:
                threads[thread] += int(waited.get(f"t{thread}", 0.0) * 1e9)


def test_all_time_counts_on_an_idle_machine() -> None:
    machine = Machine()
    pace = machine.build_pace()
    machine.pass_by(2.0)
    assert pace.now() == pytest.approx(2.0)


def test_time_spent_waiting_for_a_cpu_does_not_count() -> None:
    machine = Machine()
    pace = machine.build_pace()
    machine.pass_by(2.0, t1=0.2, t11=0.5, t2=0.4)
    # Processes wait for one another; the threads of one do so side by side.
    assert pace.now() == pytest.approx(2.0 - 0.5 - 0.4)


def test_deadlines_come_even_if_nobody_ever_gets_a_cpu() -> None:
    machine = Machine()
    pace = machine.build_pace()
    machine.pass_by(10.0, t1=10.0, t2=10.0)
    assert pace.now() == pytest.approx(1.0)


def test_process_that_comes_later_is_followed_from_then_on() -> None:
    machine = Machine()
    pace = machine.build_pace()
    machine.waits[3] = {3: 7_000_000_000}
    machine.pass_by(1.0)
    assert pace.now() == pytest.approx(1.0)
    machine.pass_by(1.0, t3=0.5)
    assert pace.now() == pytest.approx(1.5)


def test_time_in_which_everybody_was_stopped_hardly_counts() -> None:
    machine = Machine()
    pace = machine.build_pace()
    machine.pass_by(1.0)
    assert pace.now() == pytest.approx(1.0)
    machine.pass_by(1500.0)
    assert pace.now() == pytest.approx(3.0)


def test_time_stands_still_while_paused() -> None:
    machine = Machine()
    pace = machine.build_pace()
    machine.pass_by(1.0)
    pace.pause()
    machine.pass_by(30.0)
    pace.resume()
    machine.pass_by(1.0)
    assert pace.now() == pytest.approx(2.0)


def test_trials_share_one_look_at_a_process_for_a_moment() -> None:
    machine, looks = Machine(), []

    def read(pid: int) -> Waits:
        looks.append(pid)
        return machine.read(pid)

    meter = Meter(lambda: machine.at, read)
    machine.pass_by(1.0, t2=0.5)
    assert [meter.read(2)[2] for _ in range(3)] == [500_000_000] * 3
    assert looks == [2]
    machine.pass_by(1.0, t2=0.5)
    assert meter.read(2)[2] == 1_000_000_000
    assert looks == [2, 2]


def test_waits_of_a_process_that_is_gone_are_none(tmp_path: Path) -> None:
    assert read_waits(1, tmp_path) == {}


def test_waits_of_threads_are_read(tmp_path: Path) -> None:
    for thread, text in ((7, "100 2500 3\n"), (8, "1 0 1\n")):
        folder = tmp_path / "7" / "task" / str(thread)
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(text)
    assert read_waits(7, tmp_path) == {7: 2500, 8: 0}


def test_waits_of_this_process_can_be_read() -> None:
    assert all(isinstance(each, int) for each in read_waits(os.getpid()).values())

"""Results are made once, whole or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.cluster.cache import Cache, cache_root, digest_of


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path)


def build_writing(text: str, calls: list[str]) -> Callable[[Path], None]:
    def build(directory: Path) -> None:
        calls.append(text)
        (directory / "result").write_text(text)

    return build


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SLIPWAY_CACHE": "/a/b", "XDG_CACHE_HOME": "/c"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/slipway"),
        ({"HOME": "/h"}, "/h/.cache/slipway"),
        ({"SLIPWAY_CACHE": "", "HOME": "/h"}, "/h/.cache/slipway"),
    ],
)
def test_root_is_the_first_that_is_set(environ: dict[str, str], expected: str) -> None:
    assert cache_root(environ) == Path(expected)


def test_digest_tells_apart_where_one_text_ends() -> None:
    assert digest_of("ab", "c") != digest_of("a", "bc")


def test_digest_of_file_is_that_of_its_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")

    assert digest_of(tmp_path / "file") == digest_of("text")


def test_result_is_built_once(cache: Cache) -> None:
    calls: list[str] = []
    first = cache.ensure("thing", "key", build_writing("one", calls))
    second = cache.ensure("thing", "key", build_writing("two", calls))

    assert first == second
    assert calls == ["one"]
    assert (second / "result").read_text() == "one"


def test_interrupted_build_leaves_no_result_and_the_next_run_starts_clean(cache: Cache) -> None:
    def interrupted(directory: Path) -> None:
        (directory / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.ensure("thing", "key", interrupted)
    assert cache.find("thing", "key") is None

    result = cache.ensure("thing", "key", build_writing("whole", []))

    assert [path.name for path in result.iterdir()] == ["result"]


def test_finished_results_survive_an_interruption_of_another(cache: Cache) -> None:
    def interrupted(directory: Path) -> None:
        raise KeyboardInterrupt

    done = cache.ensure("first", "key", build_writing("done", []))
    with pytest.raises(KeyboardInterrupt):
        cache.ensure("second", "key", interrupted)

    assert cache.find("first", "key") == done


def test_second_run_waits_for_the_first_and_takes_its_result(cache: Cache) -> None:
    inside, waiting, calls = threading.Event(), threading.Event(), list[str]()

    def slow(directory: Path) -> None:
        inside.set()
        assert waiting.wait(10)
        build_writing("slow", calls)(directory)

    first = threading.Thread(target=cache.ensure, args=("thing", "key", slow))
    first.start()
    assert inside.wait(10)
    result = cache.ensure("thing", "key", build_writing("late", calls), on_wait=waiting.set)
    first.join()

    assert calls == ["slow"]
    assert (result / "result").read_text() == "slow"


def test_old_results_are_removed_but_the_one_before(cache: Cache) -> None:
    for key in ("a", "b", "c"):
        cache.ensure("thing", key, build_writing(key, []))

    assert cache.find("thing", "c")
    assert len(list((cache.root / "thing").iterdir())) == 2


def test_write_replaces_a_file_whole(cache: Cache) -> None:
    path = cache.path("folder", "file")
    cache.write(path, "one")
    cache.write(path, "two")

    assert path.read_text() == "two"
    assert [one.name for one in path.parent.iterdir()] == ["file"]

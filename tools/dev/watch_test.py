"""A process that is started again when its code changes."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from tools.dev.watch import Watcher, take_snapshot

_SECONDS = 180.0


def wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not path.exists() or path.read_text() != text:
        assert time.monotonic() < deadline, f"{path.name} is not {text!r}"
        time.sleep(0.05)


def run_in_background(watcher: Watcher, found: list[Path]) -> threading.Thread:
    thread = threading.Thread(target=lambda: found.append(watcher.run_once()))
    thread.start()
    return thread


def test_process_is_started_again_after_a_change(tmp_path: Path) -> None:
    code, output = tmp_path / "code.py", tmp_path / "output"
    said: list[str] = []
    found: list[Path] = []
    loop = "import pathlib, time; pathlib.Path({!r}).write_text({!r}); time.sleep(600)"
    code.write_text(loop.format(str(output), "first"))
    watcher = Watcher([sys.executable, str(code)], os.environ, [tmp_path], said.append)

    thread = run_in_background(watcher, found)
    wait_for(output, "first")
    code.write_text(loop.format(str(output), "second"))
    thread.join(_SECONDS)
    assert found == [code]
    thread = run_in_background(watcher, found)
    wait_for(output, "second")
    (tmp_path / "new.py").write_text("")
    thread.join(_SECONDS)
    watcher.stop()

    assert said == ["code.py changed; starting again", "new.py changed; starting again"]


def test_process_that_ends_waits_for_a_change(tmp_path: Path) -> None:
    code, ended = tmp_path / "code.py", threading.Event()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        ended.set()

    code.write_text("raise SystemExit(3)")
    thread = run_in_background(
        Watcher([sys.executable, str(code)], os.environ, [tmp_path], say), []
    )
    assert ended.wait(_SECONDS)
    code.unlink()
    thread.join(_SECONDS)

    assert said[0] == "Exited with 3; it starts again after a change"


def test_snapshot_is_of_python_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / "notes.txt").write_text("")

    assert [path.name for path in take_snapshot([tmp_path, tmp_path / "missing"])] == ["a.py"]

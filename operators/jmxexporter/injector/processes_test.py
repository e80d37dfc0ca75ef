"""Processes as /proc shows them, of all shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from operators.jmxexporter.injector.processes import Process, RootView

OPTIONS = ["-Xmx64m", "-cp", "a.jar:b.jar", "-XX:+UseG1GC"]


def build_process(
    proc: Path, *arguments: str, environ: str = "", maps: str = "", stat: str = ""
) -> Process:
    directory = proc / "7"
    directory.mkdir(parents=True)
    (directory / "cmdline").write_bytes(b"".join(part.encode() + b"\0" for part in arguments))
    (directory / "environ").write_text(environ)
    (directory / "maps").write_text(maps)
    (directory / "stat").write_text(stat or f"7 (a ) b) S {' '.join(map(str, range(4, 40)))}")
    (directory / "status").write_text("Name:\tjava\nState:\tS (sleeping)\nNStgid:\t7\t1\n")
    return Process(7, proc)


@pytest.mark.parametrize(
    ("arguments", "main"),
    [
        ((*OPTIONS, "com.example.Main", "--secret", "x"), "com.example.Main"),
        ((*OPTIONS, "-jar", "/opt/app/shop.jar", "-Dlater"), "shop.jar"),
        ((*OPTIONS, "-m", "mod/com.example.Main"), "mod/com.example.Main"),
        (("@/options",), ""),
        ((), ""),
    ],
)
def test_main_class_is_told_without_arguments(
    tmp_path: Path, arguments: tuple[str, ...], main: str
) -> None:
    assert build_process(tmp_path, "java", *arguments).main == main


def test_options_after_the_main_class_are_those_of_the_application(tmp_path: Path) -> None:
    environ = "A=b\0JAVA_TOOL_OPTIONS=-Dx=1 -Dy=2\0"
    process = build_process(tmp_path, "java", "-Da=b", "Main", "-Dc=d", environ=environ)

    assert list(process.options) == ["-Dx=1", "-Dy=2", "-Da=b"]


@pytest.mark.parametrize(
    ("line", "library"),
    [
        (
            "7f00-7f01 r-xp 0 00:00 1   /opt/jre/lib/server/libjvm.so",
            "/opt/jre/lib/server/libjvm.so",
        ),
        (
            "7f00-7f01 r-xp 0 00:00 1   /opt/j9/lib/default/libj9vm29.so",
            "/opt/j9/lib/default/libj9vm29.so",
        ),
        ("7f00-7f01 r-xp 0 00:00 1   /usr/lib/libc.so", ""),
        ("7f00-7f01 r-xp 0 00:00 1   /tmp/notlibjvm.sock", ""),
    ],
)
def test_jvm_is_known_by_its_library(tmp_path: Path, line: str, library: str) -> None:
    assert build_process(tmp_path, "java", maps=line + "\n").library == library


def test_name_with_parentheses_does_not_move_the_start_time(tmp_path: Path) -> None:
    assert build_process(tmp_path).start == 22


def test_inner_pid_is_that_of_the_innermost_namespace(tmp_path: Path) -> None:
    assert build_process(tmp_path).inner_pid == 1


def test_absolute_link_is_followed_inside_the_container(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "var" / "tmp").mkdir(parents=True)
    (root / "tmp").symlink_to("/var/tmp")
    (root / "up").symlink_to("../../../../var")

    view = RootView(root)

    assert view.resolve("/tmp/x") == root / "var/tmp/x"
    assert view.resolve("/up/tmp/../tmp") == root / "var/tmp"


def test_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/b")
    (tmp_path / "b").symlink_to("/a")

    with pytest.raises(OSError, match="too many"):
        RootView(tmp_path).resolve("/a")

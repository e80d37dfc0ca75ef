"""What ends a JVM, or would hang it, in the hands of others; each application survives it here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from libs.common.testing.ports import find_free_port
from operators.jmxexporter.injector.__main__ import MESSAGE_VARIABLE
from operators.jmxexporter.injector.attach import Attachment
from operators.jmxexporter.injector.inject import AgentJars, run
from operators.jmxexporter.injector.messages import (
    CONFIG_VARIABLE,
    KIT_VARIABLE,
    REQUEST_VARIABLE,
    Action,
    JvmReport,
    Report,
    State,
)
from operators.jmxexporter.injector.precheck import PRECHECK_VARIABLE, render_precheck
from operators.jmxexporter.injector.processes import Process
from operators.jmxexporter.jvms import CONFIG, Jvm, build_request, scrape_metrics
from operators.jmxexporter.reasons import Reason

type Start = Callable[..., Jvm]

PYTHON: Final = "/usr/bin/python3"
OTHER: Final = (
    *("setpriv", "--reuid=1234", "--regid=5678", "--clear-groups", "--no-new-privs"),
    *("--bounding-set=-all", "--inh-caps=-all"),
)
"""Command prefix that makes the following file belong to another user."""


def hide(path: Path, *options: str) -> str:
    """Put options where the command line does not show them."""
    file = path / "options"
    file.write_text("\n".join(options))
    return f"@{file}"


def is_untouched(jvm: Jvm) -> bool:
    """Tell that a JVM got no signal: it neither listens nor printed its threads."""
    listens = Attachment(Process(jvm.process.pid), 1).has_socket()
    return not listens and "Full thread dump" not in jvm.read_output()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-XX:+DisableAttachMechanism"], Reason.ATTACH_DISABLED),
        # JDK-8384557: the socket is elsewhere, so nobody would listen in /tmp.
        (
            ["-XX:+IgnoreUnrecognizedVMOptions", "-XX:AltTempDir=/elsewhere"],
            Reason.ATTACH_DISABLED,
        ),
        (["-XX:-EnableDynamicAgentLoading"], Reason.DYNAMIC_AGENTS_DISABLED),
        (["-Djava.security.manager"], Reason.SECURITY_MANAGER),
    ],
)
def test_jvm_that_says_no_is_not_touched(
    start_jvm: Start, options: list[str], reason: Reason, tmp_path: Path
) -> None:
    policy = tmp_path / "policy"
    policy.write_text("grant { permission java.security.AllPermission; };")
    jvm = start_jvm(*options, f"-Djava.security.policy=={policy}", release=17)

    report = jvm.inject_one(port=find_free_port())

    assert (report.state, report.reason) == (State.REFUSED, reason), report
    assert is_untouched(jvm)


def test_option_in_the_environment_is_seen(start_jvm: Start) -> None:
    jvm = start_jvm(environ={"JAVA_TOOL_OPTIONS": "-XX:+DisableAttachMechanism"})

    report = jvm.inject_one(port=find_free_port())

    assert report.reason == Reason.ATTACH_DISABLED
    assert is_untouched(jvm)


def test_attach_disabled_out_of_sight_ends_in_time(start_jvm: Start, tmp_path: Path) -> None:
    jvm = start_jvm(hide(tmp_path, "-XX:+DisableAttachMechanism"))

    report = jvm.inject_one(port=find_free_port(), timeout_seconds=1)

    assert (report.state, report.reason) == (State.FAILED, Reason.ATTACH_DISABLED), report
    assert not list(tmp_path.rglob(".attach_pid*")), "the trigger was left behind"


def test_dynamic_agents_disabled_out_of_sight_are_told_by_the_answer(
    start_jvm: Start, release: int, tmp_path: Path
) -> None:
    jvm = start_jvm(hide(tmp_path, "-XX:-EnableDynamicAgentLoading"), release=release)

    report = jvm.inject_one(port=find_free_port())

    assert (report.state, report.reason) == (State.FAILED, Reason.DYNAMIC_AGENTS_DISABLED), report


EVERYTHING = "permission java.security.AllPermission;"
FILES_AND_THREADS = """
permission java.io.FilePermission "<<ALL FILES>>", "read,write,delete";
permission java.util.PropertyPermission "*", "read";
permission java.lang.RuntimePermission "*";
"""


@pytest.mark.parametrize(
    ("granted", "state"),
    [
        (FILES_AND_THREADS, State.FAILED),
        # For example that of Cassandra, which restricts functions of its users alone.
        (EVERYTHING, State.SERVING),
    ],
    ids=["some", "all"],
)
def test_security_manager_out_of_sight_is_asked_by_the_guard(
    start_jvm: Start, jvm_kit: Path, tmp_path: Path, granted: str, state: State
) -> None:
    policy = tmp_path / "policy"
    application = f'grant codeBase "file:{jvm_kit}/sample.jar" {{ {EVERYTHING} }};'
    policy.write_text(f"{application}\ngrant {{ {granted} }};")
    options = ("-Djava.security.manager", f"-Djava.security.policy=={policy}")
    jvm, port = start_jvm(hide(tmp_path, *options), release=17), find_free_port()

    report = jvm.inject_one(port=port)

    assert report.state is state, report
    if state is State.FAILED:
        assert report.reason == Reason.SECURITY_MANAGER, report
    else:
        assert "shop_orders" in scrape_metrics(port)


def test_missing_modules_are_told_by_the_guard(start_jvm: Start, release: int) -> None:
    modules = "--limit-modules=java.base,java.instrument,java.management"
    jvm = start_jvm(modules, release=release)

    report = jvm.inject_one(port=find_free_port())

    assert (report.state, report.reason) == (State.FAILED, Reason.MISSING_MODULES), report
    assert "java.desktop" in report.message


def test_runtime_without_instrumentation_survives(start_jvm: Start, release: int) -> None:
    jvm = start_jvm("--limit-modules=java.base,java.management", release=release)

    report = jvm.inject_one(port=find_free_port())

    # Some runtimes load the module for the agent.
    refused = {Reason.MISSING_MODULES, Reason.ATTACH_REFUSED}
    assert report.state is State.SERVING or report.reason in refused, report


def test_full_metaspace_is_told_before_it_hits_the_application(
    start_jvm: Start, release: int
) -> None:
    options = ("-XX:MaxMetaspaceSize=14m", "-XX:+ExitOnOutOfMemoryError")
    jvm = start_jvm(*options, release=release)

    report = jvm.inject_one(port=find_free_port())

    assert (report.state, report.reason) == (State.FAILED, Reason.TOO_LITTLE_MEMORY), report


def test_jvm_without_signals_is_never_signalled(start_jvm: Start, release: int) -> None:
    """With -Xrs SIGQUIT would end the process; the JVM listens from the start instead."""
    jvm, port = start_jvm("-Xrs", release=release), find_free_port()

    report = jvm.inject_one(port=port)

    assert report.state is State.SERVING, report
    assert "shop_orders" in scrape_metrics(port)


def leave_socket(jvm: Jvm) -> None:
    """Leave what a killed JVM leaves, where this one would listen."""
    code = f"import socket; socket.socket(socket.AF_UNIX).bind({str(jvm.socket)!r})"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_stale_socket_of_a_jvm_before_is_no_obstacle(start_jvm: Start) -> None:
    jvm, port = start_jvm(), find_free_port()
    leave_socket(jvm)

    report = jvm.inject_one(port=port)

    assert report.state is State.SERVING, report


def test_process_that_is_only_called_java_is_left_alone(tmp_path: Path) -> None:
    fake = tmp_path / "java"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", fake)
    proc = tmp_path / "proc"
    proc.mkdir()
    with subprocess.Popen([fake, "60"]) as process:
        (proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        try:
            report = run(build_request(Action.ENSURE), CONFIG, AgentJars(tmp_path, tmp_path, proc))

            assert (report.reason, report.jvms) == (Reason.NO_JVM_FOUND, ())
            assert process.poll() is None
        finally:
            process.kill()


def test_stopped_jvm_is_left_alone(start_jvm: Start) -> None:
    jvm = start_jvm()
    jvm.process.send_signal(signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, jvm.process.pid, os.WSTOPPED | os.WNOWAIT)
        report = jvm.inject_one(port=find_free_port())
    finally:
        jvm.process.send_signal(signal.SIGCONT)

    assert (report.state, report.reason) == (State.REFUSED, Reason.NOT_READY), report


def test_injector_that_starts_after_its_time_touches_nothing(start_jvm: Start) -> None:
    """The exporter may be gone by then, and nothing would stop the endpoint."""
    jvm = start_jvm()

    report = jvm.inject(port=find_free_port(), not_after=time.time() - 1)

    assert (report.reason, report.jvms) == (Reason.INJECTOR_NOT_STARTED, ())
    assert is_untouched(jvm)


def test_jvms_beyond_the_limit_are_reported_and_not_touched(start_jvm: Start) -> None:
    jvm, other, port = start_jvm(), start_jvm(), find_free_port()
    (jvm.jars.proc / str(other.process.pid)).symlink_to(f"/proc/{other.process.pid}")

    report = jvm.inject(port=port, last_port=port + 20, max_jvms=1)

    assert report.reason == Reason.TOO_MANY_JVMS
    assert "2 JVMs" in report.message
    assert [each.state for each in report.jvms] == [State.SERVING], report
    assert [is_untouched(each) for each in (jvm, other)].count(True) == 1


def test_young_jvm_is_left_alone(start_jvm: Start) -> None:
    jvm = start_jvm()

    report = jvm.inject_one(port=find_free_port(), min_uptime_seconds=3600)

    assert (report.state, report.reason) == (State.REFUSED, Reason.NOT_READY), report
    assert is_untouched(jvm)


def test_jvm_that_ends_meanwhile_is_told_as_such(
    start_jvm: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm = start_jvm()
    jvm.may_end = True

    def end(*_: object) -> None:
        jvm.close()
        raise OSError("connection reset")

    monkeypatch.setattr(Attachment, "load", end)

    report = jvm.inject_one(port=find_free_port())

    assert (report.state, report.reason) == (State.FAILED, Reason.JVM_TERMINATED), report


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a mount namespace")
def test_read_only_tmp_is_seen_before_a_signal(start_jvm: Start) -> None:
    # What is below it stays: the JVM itself may be there.
    read_only = "mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp"
    script = f'{{ {read_only}; }} 2>/dev/null || exit 77; exec "$@"'
    if subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    # The perf data of the JVM would go to /tmp as well, and its working directory is there.
    jvm = start_jvm(prefix=["unshare", "-m", "sh", "-c", script, "sh"])

    report = jvm.inject_one(port=find_free_port())

    assert (report.state, report.reason) == (State.REFUSED, Reason.TMP_NOT_WRITABLE), report
    assert "Full thread dump" not in jvm.read_output()


@pytest.fixture
def public() -> Iterator[Path]:
    """Make a directory that everybody may read; directories of test runners may not be."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="slipway-jmx-") as directory:
        path = Path(directory)
        path.chmod(0o755)
        yield path


def publish(path: Path, jars: Path) -> None:
    """Copy what an injector needs, its code and the jars, to where everybody may read it."""
    package = Path(__file__).parent
    for held in (package.parents[1], package.parent, package):
        copy = path / held.relative_to(package.parents[2])
        copy.mkdir()
        # Of the packages above only what makes them packages.
        for file in held.glob("*.py" if held == package else "__init__.py"):
            shutil.copyfile(file, copy / file.name)
    shared = Path("operators/jmxexporter/reasons.py")
    shutil.copyfile(package.parents[2] / shared, path / shared)
    (path / "kit").mkdir()
    for jar in jars.glob("*.jar"):
        shutil.copyfile(jar, path / "kit" / jar.name)
    for copied in path.rglob("*"):
        copied.chmod(0o755 if copied.is_dir() else 0o644)


def start_other(start_jvm: Start, jars: Path, public: Path) -> Jvm:
    """Start a JVM of another user, and put what that user needs into `public`."""
    publish(public, jars)
    java = (jars / "java/17").resolve()
    for needed in (java / "bin/java", PYTHON):
        if subprocess.run([*OTHER, "test", "-r", needed], check=False).returncode:
            pytest.skip(f"{needed} is where others may not look")
    return start_jvm(prefix=OTHER, java=java, jars=public / "kit")


def inject_as_other(jvm: Jvm, public: Path) -> JvmReport:
    """Run an injector as that user; returns what became of the JVM."""
    message = public / "message"
    message.touch()
    message.chmod(0o666)
    request = build_request(Action.ENSURE, port=find_free_port(), main_class="Shop$")
    environ = {
        REQUEST_VARIABLE: request.render(),
        # It sees JVMs of other tests as well, whose memory is none of its business.
        PRECHECK_VARIABLE: render_precheck(0, 0, ""),
        CONFIG_VARIABLE: CONFIG,
        KIT_VARIABLE: str(public / "kit"),
        MESSAGE_VARIABLE: str(message),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [*OTHER, PYTHON, "-m", "operators.jmxexporter.injector"]
    # The working directory is where Python looks for modules first.
    subprocess.run(command, cwd=public, env=environ, check=True, timeout=60)
    found = Report.parse(message.read_text()).jvms
    return next(report for report in found if report.pid == jvm.process.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_jvm_of_another_user_is_told_by_its_ids_and_taken_with_them(
    start_jvm: Start, jvm_kit: Path, public: Path
) -> None:
    jvm = start_other(start_jvm, jvm_kit, public)

    as_root = jvm.inject_one(port=find_free_port())
    assert (as_root.reason, as_root.uid, as_root.gid) == (Reason.UID_MISMATCH, 1234, 5678), as_root

    report = inject_as_other(jvm, public)

    assert report.state is State.SERVING, report


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_stale_socket_of_another_user_is_named(
    start_jvm: Start, jvm_kit: Path, public: Path
) -> None:
    """In a sticky /tmp a JVM cannot put its own in that place, and would never listen."""
    jvm = start_other(start_jvm, jvm_kit, public)
    leave_socket(jvm)

    report = inject_as_other(jvm, public)

    assert (report.state, report.reason) == (State.REFUSED, Reason.FOREIGN_SOCKET), report
    assert f"/tmp/{jvm.socket.name}, left by user 0" in report.message
    assert "Full thread dump" not in jvm.read_output()
    jvm.socket.unlink()
    report = inject_as_other(jvm, public)
    assert report.state is State.SERVING, report

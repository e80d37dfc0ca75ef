"""What clients, beans and full memory can do to an endpoint, and what it does to its JVM then."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import socket
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from libs.common.testing.ports import find_free_port
from operators.jmxexporter.injector.messages import Action, State
from operators.jmxexporter.jvms import Jvm, scrape_metrics, wait_until
from operators.jmxexporter.reasons import Reason

type Start = Callable[..., Jvm]
ALL = "rules:\n- pattern: .*\n"
HALF = b"GET /metrics HTTP/1.1\r\nHost: shop\r\n"
CGROUPS = Path("/sys/fs/cgroup/memory")
MIB = 1 << 20


def is_served(port: int, name: str) -> bool:
    try:
        return name in scrape_metrics(port)
    except (urllib.error.URLError, OSError, http.client.HTTPException):
        return False


def test_clients_that_send_half_a_request_do_not_silence_the_endpoint(
    start_jvm: Start, release: int
) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    jvm.inject_one(port=port)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
    for client in clients:
        client.sendall(HALF)

    wait_until(lambda: is_served(port, "shop_orders"), 30)

    for client in clients:
        client.settimeout(30)
        assert client.recv(1) == b"", "the endpoint has ended the connection"
        client.close()


def test_bean_that_hangs_is_refused_and_blocks_neither_jcmd_nor_the_next_request(
    start_jvm: Start, tmp_path: Path, release: int
) -> None:
    hang = tmp_path / "hang"
    hang.touch()
    jvm, port = start_jvm(f"-Dshop.hang={hang}", release=release), find_free_port()

    report = jvm.inject_one(config=ALL, port=port, timeout_seconds=40)

    assert (report.state, report.reason) == (State.FAILED, Reason.TIMEOUT), report
    assert "bean" in report.message
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
    guards = [name for name in jvm.list_threads() if name.startswith("jmx-guard")]
    assert guards == ["jmx-guard-late"]
    assert jvm.inject_one(Action.STOP, timeout_seconds=40).state is State.STOPPED
    hang.unlink()
    assert jvm.inject_one(config=ALL, port=port).state is State.SERVING


def test_bean_that_begins_to_hang_is_told_to_clients_until_it_returns(
    start_jvm: Start, tmp_path: Path, release: int
) -> None:
    hang = tmp_path / "hang"
    jvm, port = start_jvm(f"-Dshop.hang={hang}", release=release), find_free_port()
    assert jvm.inject_one(config=ALL, port=port).state is State.SERVING
    hang.touch()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    assert connection.getresponse().status == 503
    connection.close()

    hang.unlink()

    wait_until(lambda: is_served(port, "shop_Stock_Pieces"), 30)
    assert jvm.inject_one(Action.STOP).state is State.STOPPED


def test_full_heap_never_reaches_the_default_handler_by_a_thread_of_the_guard(
    start_jvm: Start, tmp_path: Path, release: int
) -> None:
    """Applications end at an uncaught exception; the agent must not throw one."""
    fill = tmp_path / "fill"
    options = (f"-Dshop.fill={fill}", "-Dshop.halt=true", "-Xmx48m")
    jvm, port = start_jvm(*options, release=release), find_free_port()
    assert jvm.inject_one(config=ALL, port=port).state is State.SERVING
    # The application itself may meet the full heap, and then ends by its own thread.
    jvm.may_end = True

    for left in (4 * MIB, 2 * MIB, MIB, MIB // 2, MIB // 4):
        fill.write_text(str(left))
        if jvm.process.poll() is None:
            _use(jvm)
        for _ in range(3):
            is_served(port, "shop_orders")

    assert "UNCAUGHT in jmx-guard" not in jvm.read_output()


def _use(jvm: Jvm) -> None:
    try:
        jvm.order()
    except (OSError, ValueError):
        assert "UNCAUGHT in jmx-guard" not in jvm.read_output()


def test_jar_in_a_place_that_containers_share_is_not_loaded(
    start_jvm: Start, jvm_kit: Path, release: int
) -> None:
    """/dev/shm is shared by the containers of a pod; nothing of ours is there."""
    jvm, port = start_jvm(release=release), find_free_port()

    jvm.inject_one(port=port)

    opened = _list_jars(jvm.process.pid)
    assert [path for path in opened if path.startswith("/dev/shm")] == []
    for name in ("engine", "agent"):
        digest = hashlib.sha256((jvm_kit / f"{name}.jar").read_bytes()).hexdigest()
        (found,) = [path for path in opened if f"/{name}-" in path]
        assert hashlib.sha256(Path(found).read_bytes()).hexdigest() == digest


SEARCH = """
cd "$1" && mount --bind "$2" /dev/shm && mount --bind "$1" /tmp || exit 77
shift 2
while [ ! -e stop ]; do
  "$@" find /dev/shm /tmp /proc/[0-9]*/root/tmp -path '*slipway-jmx*' >> found 2> /dev/null
  echo >> rounds
  sleep 0.1
done
"""
"""Search again and again what a neighbor sees, with a /tmp of its own as any container has one."""
STRANGER = ("setpriv", "--reuid=4321", "--regid=4321", "--clear-groups", "--bounding-set=-all")


@contextlib.contextmanager
def run_neighbor(
    directory: Path, memory: Path, *options: str, user: Sequence[str]
) -> Iterator[Path]:
    """Run another container of the pod; in the directory it writes down what it finds of ours."""
    directory.mkdir()
    (directory / "rounds").touch()
    script = ["sh", "-c", SEARCH, "sh", str(directory), str(memory)]
    command = ["unshare", "--mount", *options, *script, *user]
    with subprocess.Popen(command) as process:
        try:
            yield directory
        finally:
            (directory / "stop").touch()
        assert process.wait(60) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a mount namespace")
@pytest.mark.parametrize(
    ("options", "user"),
    [(("--pid", "--fork", "--mount-proc"), ()), ((), STRANGER)],
    ids=["same user", "shared process namespace"],
)
def test_other_container_of_the_pod_finds_nothing_that_the_jvm_loads(
    start_jvm: Start, tmp_path: Path, release: int, options: Sequence[str], user: Sequence[str]
) -> None:
    """Containers of a pod have mounts of their own, and share the /dev/shm of the pod."""
    private, memory = tmp_path / "private", tmp_path / "memory"
    private.mkdir()
    memory.mkdir()
    memory.chmod(0o1777)
    script = f'mount --bind {memory} /dev/shm && mount --bind {private} /tmp && exec "$@"'
    container = ("unshare", "--mount", "sh", "-c", script, "sh")
    if subprocess.run([*container, "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    jvm, port = start_jvm(release=release, prefix=container), find_free_port()
    with run_neighbor(tmp_path / "neighbor", memory, *options, user=user) as neighbor:
        rounds = neighbor / "rounds"
        wait_until(rounds.read_text)

        report = jvm.inject_one(port=port)

        before = len(rounds.read_text())
        wait_until(lambda: len(rounds.read_text()) > before + 1)
        found = (neighbor / "found").read_text()
    assert report.state is State.SERVING, report
    assert [path.name[:12] for path in private.glob("slipway-jmx-*")] == ["slipway-jmx-"]
    assert found == ""


def _list_jars(pid: int) -> list[str]:
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        # The JVM closes files, such as connections, while they are listed.
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(each))
    return [link for link in found if link.endswith(".jar")]


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Make a control group as the kubelet makes one for a container."""
    if not os.access(CGROUPS, os.W_OK) or os.geteuid():
        pytest.skip("needs root and version 1 of control groups, mounted for writing")
    directory = CGROUPS / f"slipway-test-{os.getpid()}"
    directory.mkdir()
    yield directory
    wait_until(lambda: _remove(directory))


def _remove(directory: Path) -> bool:
    try:
        directory.rmdir()
    except OSError:
        return False
    return True


def enter(cgroup: Path) -> list[str]:
    """Return a command that runs another one in a control group, and shows it only that."""
    script = f'echo $$ > {cgroup}/cgroup.procs; mount --bind {cgroup} {CGROUPS}; exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


@pytest.mark.parametrize(("room", "state"), [(25, State.REFUSED), (140, State.SERVING)])
def test_container_near_its_memory_limit_is_left_alone(
    cgroup: Path, start_jvm: Start, room: int, state: State, release: int
) -> None:
    options = ("-Xms64m", "-XX:+AlwaysPreTouch")
    jvm = start_jvm(*options, release=release, prefix=enter(cgroup))
    used = int((cgroup / "memory.usage_in_bytes").read_text())
    (cgroup / "memory.limit_in_bytes").write_text(str(used + room * MIB))

    report = jvm.inject_one(config=ALL, port=find_free_port(), memory_bytes=96 * MIB)

    assert report.state is state, report
    assert report.reason == ("" if state is State.SERVING else Reason.TOO_LITTLE_MEMORY)
    assert jvm.order() > 0


def test_injector_offers_itself_to_the_kernel_before_the_application() -> None:
    code = (
        "from operators.jmxexporter.injector.precheck import volunteer_for_oom_killer as volunteer;"
        "volunteer(); print(open('/proc/self/oom_score_adj').read())"
    )

    output = subprocess.check_output([sys.executable, "-c", code], text=True)

    assert int(output) == 1000


@pytest.mark.parametrize("field", ["name: {}", "name: shop\n  labels:\n    text: {}"])
def test_rules_that_make_long_texts_fill_no_heap(start_jvm: Start, field: str) -> None:
    """The application ends itself when its heap is full, as many do."""
    jvm = start_jvm("-XX:+ExitOnOutOfMemoryError", "-Dshop.zoo=1")
    config = f"rules:\n- pattern: .*\n  {field.format('y' * 90_000)}\n"

    report = jvm.inject_one(config=config, port=find_free_port())

    assert (report.state, report.reason) == (State.FAILED, Reason.CONFIG_INVALID), report
    assert "too long for the heap" in report.message

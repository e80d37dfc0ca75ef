"""Checks before a JVM is changed. No signal is sent to it until all of them have passed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from operators.jmxexporter.injector.attach import Attachment
from operators.jmxexporter.injector.delivery import has_engine
from operators.jmxexporter.injector.messages import Action, Request
from operators.jmxexporter.injector.precheck import list_processes, read_free_memory
from operators.jmxexporter.injector.processes import Process
from operators.jmxexporter.reasons import Reason

MODULES: Final = ("java.instrument", "java.management", "java.desktop", "java.logging")
"""Modules that agent and engine use."""
_SIGQUIT_BIT: Final = 1 << (signal.SIGQUIT - 1)
_TMP: Final = "/tmp"  # noqa: S108 - HotSpot's socket is there, whatever java.io.tmpdir says.
_MOVED: Final = "-XX:AltTempDir="
_EXPORTER: Final = re.compile(
    r"-javaagent:\S*jmx_prometheus|/jmx_prometheus_javaagent|/slipway-jmx-[^/]*/upstream-"
)
"""Options and open files of a JVM with an exporter; version 0.1 could load the last one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a JVM is not changed.

    Attributes:
        reason: Reason, for programs.
        message: Explanation of the reason, for people.
    """

    reason: Reason
    message: str


def check_identity(process: Process, uid: int, gid: int) -> Refusal | None:
    """Refuse a process of another user: its files are not readable, its JVM does not respond."""
    if (process.uid, process.gid) != (uid, gid):
        message = f"runs as {process.uid}:{process.gid}, the injector as {uid}:{gid}"
        return Refusal(Reason.UID_MISMATCH, message)
    return None


def check_process(process: Process, request: Request, attachment: Attachment) -> Refusal | None:
    """Return the first reason not to change a JVM; None if it may be changed.

    Args:
        process: A process that has the user of the injector.
        request: The request.
        attachment: The connection for commands to the JVM.
    """
    checks = (_check_kind, _check_state, _check_options, _check_other, _check_modules, _check_tmp)
    for check in checks:
        if (refusal := check(process, request)) is not None:
            return refusal
    if attachment.has_socket():
        return None
    return _check_signal(process) or _check_name(attachment)


def _check_kind(process: Process, _: Request) -> Refusal | None:
    if "j9vm" in process.library:
        return Refusal(Reason.UNSUPPORTED_JVM, "OpenJ9 has an attach protocol of its own")
    return None


def _check_state(process: Process, request: Request) -> Refusal | None:
    if process.scheduling not in "RSD":
        return Refusal(Reason.NOT_READY, f"the process is in state {process.scheduling}")
    uptime = process.read_uptime()
    if uptime < request.min_uptime_seconds:
        message = (
            f"has been running for {uptime:.0f} s, injected after {request.min_uptime_seconds} s"
        )
        return Refusal(Reason.NOT_READY, message)
    return None


def _check_options(process: Process, request: Request) -> Refusal | None:
    options = process.options
    if "-XX:+DisableAttachMechanism" in options:
        return Refusal(Reason.ATTACH_DISABLED, "-XX:+DisableAttachMechanism is set")
    if moved := next((each for each in options if each.startswith(_MOVED)), None):
        message = f"{moved} is set, and only {_TMP} is known to be out of reach of other containers"
        return Refusal(Reason.ATTACH_DISABLED, message)
    if request.action is Action.STOP:
        return None
    if "-XX:-EnableDynamicAgentLoading" in options:
        return Refusal(Reason.DYNAMIC_AGENTS_DISABLED, "-XX:-EnableDynamicAgentLoading is set")
    for option in options:
        name, _, value = option.partition("=")
        if name == "-Djava.security.manager" and value not in ("allow", "disallow"):
            return Refusal(Reason.SECURITY_MANAGER, f"{option} is set")
    return None


def _check_other(process: Process, request: Request) -> Refusal | None:
    """Refuse a JVM with another exporter, whether an option, a file of options or an attach has it.

    An endpoint of ours that is there already can still be changed.
    """
    if request.action is Action.STOP or has_engine(process, request.id):
        return None
    held = (*process.options, *process.list_files())
    found = next((each for each in held if _EXPORTER.search(each)), None)
    if found is None:
        return None
    message = f"has the JMX exporter already ({found[:200]}); remove it and restart the JVM"
    return Refusal(Reason.ALREADY_INSTRUMENTED, message)


def _check_modules(process: Process, _: Request) -> Refusal | None:
    """Check the modules that the runtime lists; a runtime without a list has all modules."""
    home = PurePosixPath(process.library).parents[2]
    try:
        release = process.root.resolve(str(home / "release")).read_text()
    except (OSError, ValueError):
        return None
    values = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
    present = {name for word in shlex.split(values.get("MODULES", "")) for name in word.split()}
    missing = [module for module in MODULES if present and module not in present]
    if missing:
        return Refusal(Reason.MISSING_MODULES, f"the runtime has no {', '.join(missing)}")
    return None


def _check_tmp(process: Process, _: Request) -> Refusal | None:
    try:
        tmp = process.root.resolve(_TMP)
        writable = os.access(tmp, os.W_OK | os.X_OK)
    except OSError as error:
        return Refusal(Reason.PTRACE_DENIED, str(error))
    if not writable:
        message = f"{_TMP} is not writable, and a JVM creates its socket there; mount an emptyDir"
        return Refusal(Reason.TMP_NOT_WRITABLE, message)
    return None


def _check_signal(process: Process) -> Refusal | None:
    if not int(process.status["SigCgt"], 16) & _SIGQUIT_BIT:
        message = "the process does not catch SIGQUIT yet, so the signal would end it"
        return Refusal(Reason.NOT_READY, message)
    return None


def _check_name(attachment: Attachment) -> Refusal | None:
    if blocker := attachment.find_blocker():
        message = f"{blocker}, has the name of the socket on which the JVM would listen; delete it"
        return Refusal(Reason.FOREIGN_SOCKET, message)
    return None


def check_memory(process: Process, request: Request) -> Refusal | None:
    """Refuse a container that is near its memory limit: the kernel would kill the application.

    An endpoint uses up to 50 MiB of resident memory.
    """
    members = list_processes(str(process.proc), request.visible_container)
    free = read_free_memory(str(process.path), request.memory_limit, members)
    if free is None or free >= request.memory_bytes:
        return None
    message = (
        f"the container has {free >> 20} MiB left below its memory limit, and "
        f"{request.memory_bytes >> 20} MiB are required (spec.minFreeMemory); raise the limit"
    )
    return Refusal(Reason.TOO_LITTLE_MEMORY, message)


def find_port(host: str, ports: Sequence[int]) -> int | None:
    """Return the first free port; None if all are in use.

    Another process may take the port a moment later. The guard then fails to bind it.
    """
    for port in ports:
        if _is_free(host, port):
            return port
    return None


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As in Java, a connection that was closed recently must not block its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True

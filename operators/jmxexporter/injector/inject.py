"""Execution of a request on the JVMs of a container."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from operators.jmxexporter.injector.access import Access
from operators.jmxexporter.injector.attach import AttachError, Attachment
from operators.jmxexporter.injector.delivery import (
    SharedDirectory,
    find_directory,
    has_engine,
    parse_properties,
    render_properties,
)
from operators.jmxexporter.injector.messages import Action, JvmReport, Report, Request, State
from operators.jmxexporter.injector.precheck import list_processes, may_be_jvm
from operators.jmxexporter.injector.preflight import (
    Refusal,
    check_identity,
    check_memory,
    check_process,
    find_port,
)
from operators.jmxexporter.injector.processes import PROC, Process
from operators.jmxexporter.injector.scrape import (
    Address,
    await_scrape,
    scrape,
)
from operators.jmxexporter.reasons import Reason

_PAUSE: Final = 0.05
_SEARCH_SECONDS: Final = 5.0
_LOOPBACK: Final = "127.0.0.1"
_ANY: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - only compared.


@dataclass(frozen=True, slots=True)
class AgentJars:
    """The jars that the injector loads."""

    agent: Path
    engine: Path
    proc: Path = PROC

    @classmethod
    def of(cls, directory: Path) -> AgentJars:
        """Return the jars in a directory."""
        return cls(*(directory / f"{name}.jar" for name in ("agent", "engine")))


@dataclass(frozen=True, slots=True)
class AgentPayload:
    """The configuration, jars and access control of an endpoint.

    Attributes:
        access: Access control of the endpoint.
    """

    config: str
    jars: AgentJars
    access: Access


def run(
    request: Request,
    config: str,
    jars: AgentJars,
    access: Access = Access(),  # noqa: B008
) -> Report:
    """Execute a request on each JVM of the container."""
    if request.not_after and (late := time.time() - request.not_after) > 0:
        message = (
            f"the injector started {late:.0f} s too late by the clock of its node; the image is"
            " pulled slowly, or the clock is ahead"
        )
        return Report(reason=Reason.INJECTOR_NOT_STARTED, message=message)
    if request.action is not Action.STOP:
        found = hashlib.sha256(config.encode()).hexdigest()
        if found != request.config_hash:
            message = "the ConfigMap has changed since the operator read it"
            return Report(reason=Reason.CONFIG_CHANGED, message=message)
        if missing := access.find_missing(request):
            return Report(reason=Reason.SECRET_MISSING, message=missing)
    try:
        with _limit_search():
            candidates = find_candidates(request, jars.proc)
    except TimeoutError:
        message = "spec.mainClass or spec.excludeMainClass takes too long; simplify the pattern"
        return Report(reason=Reason.INVALID_SPEC, message=message)
    if not candidates:
        return Report(reason=Reason.NO_JVM_FOUND, message="no process in this container is a JVM")
    # Stop the endpoints of all JVMs: the limit may have been higher when they were created.
    limit = len(candidates) if request.action is Action.STOP else request.max_jvms
    taken: set[int] = set()
    reports = []
    for process in candidates[:limit]:
        report = _handle(process, request, AgentPayload(config, jars, access), taken)
        taken.add(report.port)
        reports.append(report)
        if report.reason == Reason.JVM_TERMINATED:
            # The cause that ended this JVM may end the others as well.
            return Report(tuple(reports))
    if len(candidates) > limit:
        message = f"{len(candidates)} JVMs run here, spec.maxJvms is {limit}; raise it"
        return Report(tuple(reports), Reason.TOO_MANY_JVMS, message)
    return Report(tuple(reports))


def find_candidates(request: Request, proc: Path) -> list[Process]:
    """Find the JVMs of the container, including JVMs of other users, whose maps cannot be read."""
    found = []
    for path in list_processes(str(proc), request.visible_container):
        process = Process(int(path.rpartition("/")[2]), proc)
        try:
            if _is_jvm(process) and _is_wanted(process, request):
                found.append(process)
        except TimeoutError:
            raise
        except (OSError, KeyError, ValueError):
            continue  # The process has ended in the meantime.
    return found


@contextlib.contextmanager
def _limit_search() -> Iterator[None]:
    """End a search that needs more CPU than any useful pattern does, with a `TimeoutError`.

    Nobody can end an ephemeral container, so it would use a core until the pod is deleted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Only in tests.
        return

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SEARCH_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _is_jvm(process: Process) -> bool:
    try:
        return bool(process.library)
    except PermissionError:
        return may_be_jvm(str(process.path))


def _is_wanted(process: Process, request: Request) -> bool:
    main = process.main
    if request.main_class and not re.search(request.main_class, main):
        return False
    return not (request.exclude_main_class and re.search(request.exclude_main_class, main))


def _handle(
    process: Process, request: Request, payload: AgentPayload, taken: set[int]
) -> JvmReport:
    """Execute a request on one JVM; errors become part of the report."""
    blank = JvmReport(process.pid)
    try:
        blank = JvmReport(
            process.pid, process.start, process.main, uid=process.uid, gid=process.gid
        )
        refusal = check_identity(process, os.geteuid(), os.getegid())
        if refusal is None:
            attachment = Attachment(process, request.timeout_seconds)
            refusal = check_process(process, request, attachment)
        if refusal is not None:
            return _refuse(blank, refusal)
        return Job(process, request, payload, blank, frozenset(taken)).run()
    except AttachError as error:
        alive = process.is_alive()
        reason = error.reason if alive else Reason.JVM_TERMINATED
        return replace(blank, state=State.FAILED, reason=reason, message=str(error))
    except PermissionError as error:
        return _refuse(blank, Refusal(Reason.PTRACE_DENIED, str(error)))
    except (OSError, ValueError) as error:
        reason = Reason.AGENT_ERROR if process.is_alive() else Reason.JVM_TERMINATED
        return replace(blank, state=State.FAILED, reason=reason, message=str(error))


def _refuse(blank: JvmReport, refusal: Refusal) -> JvmReport:
    return replace(blank, reason=refusal.reason, message=refusal.message)


@dataclass(frozen=True, slots=True)
class Job:
    """The execution of a request on one JVM that passed the checks.

    Attributes:
        payload: Configuration, jars and access control.
        blank: Report without a result.
        taken: Ports of the JVMs that were handled before this one.
    """

    process: Process
    request: Request
    payload: AgentPayload
    blank: JvmReport
    taken: frozenset[int]

    def run(self) -> JvmReport:
        """Execute the request."""
        dry = self.request.action is Action.CHECK
        shared = find_directory(self.process, self.request.id, dry=dry)
        if shared is None:
            message = "the directory for the jars cannot be created in /tmp"
            return _refuse(self.blank, Refusal(Reason.NO_WRITABLE_PATH, message))
        if self.request.action is Action.STOP:
            return self._stop(shared)
        if self.request.action is Action.ENSURE:
            for former in self.request.former:
                if has_engine(self.process, former):
                    stop = replace(self.request, id=former, action=Action.STOP)
                    replace(self, request=stop).run()
        # Another injector may start the endpoint, and take the port, while this one looks.
        port = self._choose_port() or self._choose_port()
        if port is None:
            message = f"no port from {self.request.port} to {self.request.last_port} is free"
            return _refuse(self.blank, Refusal(Reason.PORT_IN_USE, message))
        loaded = has_engine(self.process, self.request.id)
        refusal = None if loaded else check_memory(self.process, self.request)
        if refusal is not None:
            return _refuse(self.blank, refusal)
        if self.request.action is Action.CHECK:
            return replace(self.blank, state=State.WOULD_INJECT, port=port)
        return self._ensure(shared, port)

    def _choose_port(self) -> int | None:
        """Return the port on which the JVM serves the endpoint, else a free port of the request."""
        ports = range(self.request.port, self.request.last_port + 1)
        if (served := self._find_served()) is not None:
            return served
        return find_port(self.request.host, [port for port in ports if port not in self.taken])

    def _find_served(self) -> int | None:
        """Return the port of the request on which the JVM serves the endpoint; None for none."""
        if not has_engine(self.process, self.request.id):
            return None
        ports = range(self.request.port, self.request.last_port + 1)
        for port in sorted(self.process.list_ports().intersection(ports)):
            if (found := self._query(port)) is not None and found["id"] == self.request.id:
                return port
        return None

    def _query(self, port: int) -> dict[str, str] | None:
        """Ask a guard, which may serve HTTPS; a refused plain request is answered immediately."""
        plain, secret = (Address(self._target, port, encrypted=each) for each in (False, True))
        limit = self.request.timeout_seconds
        return scrape(plain, limit) or scrape(secret, limit)

    def _ensure(self, shared: SharedDirectory, port: int) -> JvmReport:
        request = self.request
        answer = self._ask(
            shared,
            {
                "command": "ensure",
                "engine": shared.put_jar(self.payload.jars.engine),
                "engineHash": hashlib.sha256(self.payload.jars.engine.read_bytes()).hexdigest(),
                # The injector needs the other half of the time to verify the result.
                "limitMillis": str(request.timeout_seconds * 500),
                "config": shared.put(
                    f"config-{request.config_hash[:16]}.yaml", self.payload.config.encode()
                ),
                "configHash": request.config_hash,
                "host": request.host,
                "port": str(port),
                "path": request.path,
                **self.payload.access.render(request),
            },
        )
        late = answer.get("reason") == Reason.TIMEOUT
        if answer.get("outcome") != "ok" and not late:
            return self._fail(answer)
        address = Address(self._target, port, encrypted=bool(request.tls_secret))
        found = await_scrape(address, request.timeout_seconds)
        if found is None or found["configHash"] != request.config_hash:
            message = f"port {port} does not serve the loaded configuration"
            refused = {"reason": Reason.NOT_SERVING, "message": message}
            return self._fail(answer if late else refused)
        return self._report(port, found, changed=answer.get("changed") == "true")

    def _stop(self, shared: SharedDirectory) -> JvmReport:
        loaded = has_engine(self.process, self.request.id)
        answer = self._ask(shared, {"command": "stop"}) if loaded else {"outcome": "ok"}
        if answer.get("outcome") != "ok":
            return self._fail(answer)
        shared.clear()
        changed = answer.get("changed") == "true"
        return replace(self.blank, state=State.STOPPED, changed=changed)

    def _ask(self, shared: SharedDirectory, request: dict[str, str]) -> dict[str, str]:
        """Send a request to the guard, and wait for its response."""
        stem = f"{self.process.pid}-{secrets.token_hex(8)}"
        answer = f"answer-{stem}.properties"
        request |= {"id": self.request.id, "answer": f"{shared.inside}/{answer}"}
        name = f"request-{stem}.properties"
        shared.remove_stale()
        path = shared.put(name, render_properties(request))
        try:
            agent = shared.put_jar(self.payload.jars.agent)
            Attachment(self.process, self.request.timeout_seconds).load(agent, path)
            return self._await_answer(shared.outside / answer)
        finally:
            shared.remove(name, answer)

    def _await_answer(self, path: Path) -> dict[str, str]:
        deadline = time.monotonic() + self.request.timeout_seconds
        while not path.exists():
            if not self.process.is_alive():
                raise AttachError(Reason.JVM_TERMINATED, "the JVM ended during the request")
            if time.monotonic() > deadline:
                message = "the agent was loaded and did not respond"
                return {"outcome": "error", "reason": Reason.TIMEOUT, "message": message}
            time.sleep(_PAUSE)
        return parse_properties(path.read_bytes())

    @property
    def _target(self) -> str:
        return _LOOPBACK if self.request.host in _ANY else self.request.host

    def _fail(self, answer: dict[str, str]) -> JvmReport:
        """Report a failure, and the endpoint that the JVM serves nevertheless."""
        reason = answer.get("reason", Reason.AGENT_ERROR)
        report = replace(
            self.blank, state=State.FAILED, reason=reason, message=answer.get("message", "")
        )
        port = self._find_served()
        found = self._query(port) if port is not None else None
        if port is None or found is None:
            return report
        return replace(
            report, port=port, config_hash=found["configHash"], version=found.get("version", "")
        )

    def _report(self, port: int, found: Mapping[str, str], *, changed: bool) -> JvmReport:
        return replace(
            self.blank,
            state=State.SERVING,
            port=port,
            config_hash=found["configHash"],
            version=found.get("version", ""),
            changed=changed,
        )

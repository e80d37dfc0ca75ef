"""Messages between the operator and its injectors: requests, reports, and their variables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final

from operators.jmxexporter.reasons import Reason

ANY_HOST: Final = "0.0.0.0"  # noqa: S104 - the endpoint is for the network of the pod.
"""Address on which endpoints listen."""
KIT_VARIABLE: Final = "JMX_KIT"
"""Environment variable with the directory of the jars; /kit if it is not set."""
REQUEST_VARIABLE: Final = "JMX_REQUEST"
"""Environment variable with the request, as JSON."""
START_VARIABLE: Final = "JMX_START"
"""Environment variable of the init container: settings of the agent as a JSON object of strings.

`directory` is where the container puts all files; `configText` is the configuration if no volume
contains it.
"""
CONFIG_VARIABLE: Final = "JMX_CONFIG"
"""Environment variable with the configuration of the exporter, as YAML."""
KEY_VARIABLE: Final = "JMX_PUBLIC_KEY"
"""Environment variable with the key of the operator, as base64 of a SubjectPublicKeyInfo."""
TLS_VARIABLES: Final = {"tls.crt": "JMX_TLS_CERTIFICATE", "tls.key": "JMX_TLS_KEY"}
"""Environment variables with the certificate of the endpoint, by key of the Secret."""
CLIENTS_VARIABLE: Final = "JMX_TLS_CLIENTS"
"""Environment variable with the CA of client certificates: `ca.crt` of the Secret."""
LOGIN_VARIABLES: Final = {"username": "JMX_USERNAME", "password": "JMX_PASSWORD"}
"""Environment variables with the login for the metrics, by key of the Secret."""
MESSAGE_LIMIT: Final = 4096
"""Bytes of a termination message that the kubelet keeps."""
_TEXT_LIMIT: Final = 700
_JVMS_SHOWN: Final = 8
_NAME_LIMIT: Final = 160
_STATUS_LIMIT: Final = 256
_LAST_PORT: Final = 65_535
_TUNING: Final = (
    "max_jvms",
    "min_uptime_seconds",
    "timeout_seconds",
    "memory_bytes",
    "memory_limit",
)
"""Fields of a request that do not affect which endpoint an injector creates."""
_FILTERS: Final = ("container_id", "shared_processes", "main_class", "exclude_main_class")
"""Fields of a request that select the processes."""


class Action(StrEnum):
    """An action on the JVMs of a container."""

    ENSURE = "Ensure"
    """Make each JVM serve its metrics."""
    STOP = "Stop"
    """Stop the endpoints."""
    CHECK = "Check"
    """Report what Ensure would do, without changing anything."""


class State(StrEnum):
    """The result for one JVM."""

    SERVING = "Serving"
    STOPPED = "Stopped"
    WOULD_INJECT = "WouldInject"
    REFUSED = "Refused"
    """Nothing was changed; the reason says why."""
    FAILED = "Failed"
    """The attempt failed; the reason says why."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for an action on the JVMs of one container.

    Attributes:
        id: Name of the endpoint in each JVM: UID of the custom resource.
        container_id: Id of the container at the runtime, without its scheme.
        shared_processes: Whether the containers of the pod see each other's processes.
        config_hash: SHA-256 of the configuration, in hexadecimal.
        main_class: Pattern of the main classes to instrument; empty for all.
        exclude_main_class: Pattern of the main classes to exclude; empty for none.
        max_jvms: Maximum number of JVMs to instrument in the container.
        min_uptime_seconds: Age below which a JVM is not changed.
        memory_bytes: Bytes that the container must have free below its limit.
        memory_limit: Memory limit in the spec of the container; 0 for none.
        not_after: Time after which the injector does nothing, in seconds since the epoch; 0 for
            no limit. An injector whose image is pulled late must not inject for a deleted object.
        tls_secret: Name of the Secret with the certificate of the endpoint; empty for HTTP.
        client_certificates: Whether only clients with a certificate may read the metrics.
        login_secret: Name of the Secret with user and password; empty for no login.
        former: Endpoints to stop, whose custom resources no longer exist.
        created: When the operator created it, in seconds since the epoch; 0 before version 0.2.
        restarts: How often the container had restarted before.
    """

    id: str
    action: Action
    container_id: str = ""
    shared_processes: bool = False
    host: str = ANY_HOST
    port: int = 9400
    last_port: int = 9400
    path: str = "/metrics"
    config_hash: str = ""
    main_class: str = ""
    exclude_main_class: str = ""
    max_jvms: int = 5
    min_uptime_seconds: int = 5
    timeout_seconds: int = 40
    memory_bytes: int = 0
    memory_limit: int = 0
    not_after: int = 0
    tls_secret: str = ""
    client_certificates: bool = False
    login_secret: str = ""
    former: tuple[str, ...] = ()
    created: int = 0
    generation: int = 0
    restarts: int = 0

    def render(self) -> str:
        """Return the request as text."""
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)

    def wants_like(self, other: Request) -> bool:
        """Return whether two requests are for the same endpoint; limits of injectors may differ.

        An endpoint that serves needs no further injector after, for example, a longer timeout.
        """
        return self.is_like(replace(other, **{name: getattr(self, name) for name in _TUNING}))

    def is_like(self, other: Request) -> bool:
        """Return whether two requests differ at most in what does not affect an injector."""
        return self._undated() == other._undated()

    def looks_like(self, other: Request) -> bool:
        """Return whether two requests select the same JVMs of the same container."""
        return all(getattr(self, name) == getattr(other, name) for name in _FILTERS)

    def _undated(self) -> Request:
        return replace(self, former=(), created=0, generation=0, not_after=0, restarts=0)

    @property
    def visible_container(self) -> str:
        """The id of the container if the injector sees processes of others; empty if not."""
        return self.container_id if self.shared_processes else ""

    @property
    def secrets(self) -> list[tuple[str, str, str]]:
        """The values that the injector needs: Secret, key, and the variable that contains it."""
        found = [(self.tls_secret, *pair) for pair in TLS_VARIABLES.items() if self.tls_secret]
        if self.client_certificates:
            found.append((self.tls_secret, "ca.crt", CLIENTS_VARIABLE))
        login = LOGIN_VARIABLES.items() if self.login_secret else ()
        return [*found, *((self.login_secret, *pair) for pair in login)]

    @classmethod
    def parse(cls, text: str) -> Request:
        """Parse a request; unknown fields are ignored.

        Raises:
            ValueError: The text is not a request.
        """
        raw = _known(cls, json.loads(text))  # security: at most MESSAGE_LIMIT
        if not isinstance(raw.get("id"), str):
            raise ValueError("no id")  # noqa: TRY004 - one error for whatever is wrong.
        raw["action"] = Action(raw["action"])
        raw["former"] = tuple(map(str, raw.get("former", ())))
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class JvmReport:
    """The result for one JVM.

    Attributes:
        pid: Process id, as the container sees it.
        start: Start of the process in ticks since the boot; identifies it together with `pid`.
        reason: Why it was refused or failed, as a value of `Reason`.
        message: Explanation of the reason, for people.
        port: Port that it serves on; 0 for none. With state Failed, the port of an earlier endpoint
            that still served after the failure.
        config_hash: Hash of the configuration that it serves on `port`.
        changed: Whether this run changed anything.
    """

    pid: int
    start: int = 0
    main: str = ""
    state: State = State.REFUSED
    reason: str = ""
    message: str = ""
    port: int = 0
    config_hash: str = ""
    version: str = ""
    changed: bool = False
    uid: int = -1
    gid: int = -1


@dataclass(frozen=True, slots=True)
class Report:
    """The results for the JVMs of a container.

    Attributes:
        jvms: One report per JVM.
        reason: Why there are no reports, why the run ended early, or why JVMs were left out.
        message: Explanation of the reason, for people.
    """

    jvms: tuple[JvmReport, ...] = ()
    reason: str = ""
    message: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether the report covers every JVM of the container."""
        return not self.reason and all(jvm.reason != Reason.JVM_TERMINATED for jvm in self.jvms)

    def render(self) -> str:
        """Return the report as text that fits into a termination message."""
        text = ""
        for length in (_TEXT_LIMIT, _NAME_LIMIT, 40, 0):
            text = json.dumps(self._shorten(length), separators=(",", ":"))
            if len(text.encode()) <= MESSAGE_LIMIT:
                break
        return text

    def _shorten(self, length: int) -> Mapping[str, Any]:
        shown = self.jvms[:_JVMS_SHOWN]
        jvms = [{**asdict(jvm), "message": jvm.message[:length]} for jvm in shown]
        jvms = [{**jvm, "main": jvm["main"][: min(max(length, 20), _NAME_LIMIT)]} for jvm in jvms]
        return {"jvms": jvms, "reason": self.reason, "message": self.message[:length]}

    @classmethod
    def parse(cls, text: str) -> Report:
        """Parse a report.

        Raises:
            ValueError: The text is not a report.
        """
        raw = json.loads(text)  # security: at most MESSAGE_LIMIT
        if not isinstance(raw, dict) or not isinstance(raw.get("jvms", []), Sequence):
            raise ValueError("not a report")  # noqa: TRY004 - one error for whatever is wrong.
        jvms = [_known(JvmReport, jvm) for jvm in raw.get("jvms", [])]
        if not all(map(_is_sound, jvms)):
            raise ValueError("not a report of JVMs")
        reports = tuple(JvmReport(**{**jvm, "state": State(jvm["state"])}) for jvm in jvms)
        return cls(reports, str(raw.get("reason", "")), str(raw.get("message", "")))


def _is_sound(jvm: Mapping[str, Any]) -> bool:
    """Return whether a report fits into a status; a process of the pod may have forged it."""
    texts = [jvm.get(name, "") for name in ("main", "reason", "config_hash", "version")]
    message = jvm.get("message", "")
    port, numbers = jvm.get("port", 0), [jvm.get(name, 0) for name in ("pid", "start", "port")]
    return (
        all(isinstance(text, str) and len(text) <= _STATUS_LIMIT for text in texts)
        and isinstance(message, str)
        and len(message) <= _TEXT_LIMIT
        and all(isinstance(number, int) and number >= 0 for number in numbers)
        and all(isinstance(jvm.get(name, -1), int) for name in ("uid", "gid"))
        and port <= _LAST_PORT
    )


def _known(model: type, raw: object) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one error for whatever is wrong.
    names = {field.name for field in fields(model)}
    return {name: value for name, value in raw.items() if name in names}

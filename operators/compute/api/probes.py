"""How a guest proves that it has booted, a part of Instance."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from libs.common.crd import KubernetesModel, Rule, Uid

PortNumber = Annotated[int, Field(ge=1, le=65_535)]
"""Number of a TCP port of the guest."""


class BootCheck(StrEnum):
    """BootCheck is what proves that a guest has booted if no readinessProbe is set."""

    AUTO = "Auto"
    GUEST_AGENT = "GuestAgent"
    RUNNING = "Running"


class HttpScheme(StrEnum):
    """HttpScheme is the protocol of an HTTP probe."""

    HTTP = "HTTP"
    HTTPS = "HTTPS"


class TcpProbe(KubernetesModel):
    """TcpProbe opens a TCP connection to the guest."""

    port: PortNumber
    """port is the TCP port of the guest."""


class HttpProbe(KubernetesModel):
    """HttpProbe sends an HTTP GET request to the guest. Any status from 200 to 399 succeeds."""

    port: PortNumber
    """port is the TCP port of the guest."""
    path: Annotated[str, Field(max_length=1024, pattern=r"^/[^\s]*$")] = "/"
    """path is the path of the request. Defaults to /."""
    scheme: HttpScheme = HttpScheme.HTTP
    """scheme is HTTP or HTTPS. The certificate is not verified. Defaults to HTTP."""


class AgentProbe(KubernetesModel):
    """AgentProbe pings the guest agent. It has no options."""


class ReadinessProbe(
    KubernetesModel,
    rules=(
        Rule(
            "(has(self.tcpSocket) ? 1 : 0) + (has(self.httpGet) ? 1 : 0) + "
            "(has(self.guestAgentPing) ? 1 : 0) == 1",
            "a probe needs exactly one of tcpSocket, httpGet and guestAgentPing",
        ),
    ),
):
    """ReadinessProbe checks that the guest responds. KubeVirt runs it."""

    tcp_socket: TcpProbe | None = None
    """tcpSocket opens a TCP connection. It needs an interface on the pod network."""
    http_get: HttpProbe | None = None
    """httpGet sends an HTTP request. It needs an interface on the pod network."""
    guest_agent_ping: AgentProbe | None = None
    """guestAgentPing pings the guest agent."""
    initial_delay_seconds: Annotated[int, Field(ge=0, le=3600)] = 0
    """initialDelaySeconds is the time from the start of the machine to the first probe. Defaults
    to 0."""
    period_seconds: Annotated[int, Field(ge=1, le=300)] = 10
    """periodSeconds is the time between two probes. Defaults to 10."""
    timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 5
    """timeoutSeconds is the time that one probe can take. Defaults to 5."""
    failure_threshold: Annotated[int, Field(ge=1, le=100)] = 3
    """failureThreshold is the number of failures in a row after which the guest is not ready.
    Defaults to 3."""


class Proof(StrEnum):
    """Proof is the way in which a guest has shown that it booted."""

    PROBE = "Probe"
    AGENT = "Agent"


class VerifiedBoot(KubernetesModel):
    """VerifiedBoot is the last run whose guest has shown that it booted."""

    vmi_uid: Annotated[Uid, Field(alias="vmiUID")]
    """vmiUID is the UID of the VirtualMachineInstance."""
    proof: Proof
    """proof is Probe if the readiness probe succeeded, or Agent if the guest agent responded."""

"""Settings of the simulator as a process, in addition to the settings of the runtime."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from libs.common.settings import CommonSettings, operator_settings
from libs.common.settings.fields import CommaList

type Mode = Literal["Simulated", "Cluster"]
type LoadBalancer = Literal["Off", "MetalLB", "Cilium", "KubeVip"]
type Rollout = Literal["LiveUpdate", "Stage"]

DEFAULT_IMAGE = "registry.k8s.io/pause:3.10"


class SimulatorSettings(CommonSettings):
    """Settings of the simulator; each has a flag and an environment variable."""

    model_config = operator_settings("kubevirt_sim")

    watch_namespaces: CommaList = ("*",)
    """watch_namespaces is a comma-separated list of the namespaces to watch; `*` means all."""

    leader_elect: bool = False
    """leader_elect says whether a Lease decides which of several simulators works."""

    launchers: Mode = "Simulated"
    """launchers says who runs launcher pods and binds claims: `Simulated` for nodes that the
    simulator plays, `Cluster` for the scheduler, kubelets and provisioners of the cluster."""

    launcher_image: str = DEFAULT_IMAGE
    """launcher_image is the image of launcher pods, which does nothing; kubelets must have it."""

    rollout: Rollout = "LiveUpdate"
    """rollout is the rollout strategy of the installation: `LiveUpdate`, KubeVirt's default, or
    `SimulatorContext`."""

    load_balancer: LoadBalancer = "Off"
    """load_balancer says which load balancer is played: it announces what Services ask for in its
    words. `Off` leaves Services alone."""

    nodes: int = Field(default=3, ge=0, le=100)
    """nodes is the number of nodes that are played where launchers are simulated."""

    heartbeats: bool = True
    """heartbeats says whether the played nodes renew their Leases, as a node lifecycle controller
    wants it."""

    speed: float = Field(default=1.0, gt=0, le=10_000)
    """speed is the number of seconds of delays that pass in a real second."""

    action_address: str = ""
    """action_address is where the server of the subresources and of the admission webhooks
    listens, such as `0.0.0.0:8443`; empty means that there is none."""

    certificate_file: str = ""
    """certificate_file is the certificate of that server, as a PEM file."""

    key_file: str = ""
    """key_file is the private key of that server, as a PEM file."""

    guest_address: str = ""
    """guest_address is where the APIs of the clusters listen that guests make with kubeadm, such as
    `0.0.0.0:6443`; empty means that guests make none."""

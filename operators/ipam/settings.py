"""Settings of the ipam operator."""

from enum import StrEnum

from pydantic import Field

from libs.common.settings import CommonSettings, operator_settings
from operators.ipam.naming import OPERATOR


class Announcement(StrEnum):
    """How the Service of a claim makes its address known."""

    LOAD_BALANCER = "LoadBalancer"
    EXTERNAL_IPS = "ExternalIPs"


class Settings(CommonSettings):
    """Settings of the ipam operator; each has a flag and an environment variable."""

    model_config = operator_settings(OPERATOR)

    announcement: Announcement = Announcement.LOAD_BALANCER
    """announcement is how Services make addresses known: LoadBalancer (MetalLB and others that read
    its annotations) or ExternalIPs (kube-proxy alone, for networks that route to the nodes)."""
    load_balancer_class: str = Field(default="", max_length=253)
    """load_balancer_class is the class of the load balancer that announces addresses; empty for
    the default of the cluster."""

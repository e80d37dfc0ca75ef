"""Settings of the ipam operator."""

from enum import StrEnum

from pydantic import Field

from libs.common.crd import LabelKey
from libs.common.settings import CommaList, CommonSettings, operator_settings
from operators.ipam.naming import LOAD_BALANCER_CLASS, OPERATOR_ID


class Announcement(StrEnum):
    """How the Service of a claim makes its address known."""

    METALLB = "MetalLB"
    CILIUM = "Cilium"
    KUBE_VIP = "KubeVip"
    LOAD_BALANCER_IP = "LoadBalancerIP"
    EXTERNAL_IPS = "ExternalIPs"
    NONE = "None"


class Settings(CommonSettings):
    """Settings of the ipam operator; each has a flag and an environment variable."""

    model_config = operator_settings(OPERATOR_ID)

    max_concurrent_reconciles: int = Field(default=16, ge=1, le=1000)
    """max_concurrent_reconciles is the number of objects that a controller reconciles at a time.
    Claims wait for the API server nearly all the time."""
    announcement: Announcement = Announcement.METALLB
    """announcement defines how addresses are announced outside the cluster. MetalLB, Cilium and
    KubeVip set the annotations of these load balancers on Services; LoadBalancerIP sets
    spec.loadBalancerIP for other load balancers. With these four values, an IPClaim is Bound only
    after the load balancer reports its address. ExternalIPs sets spec.externalIPs, for networks
    that route the addresses to the nodes; None creates Services of type ClusterIP. With these two
    values, nothing reports whether the network delivers an address, and Announced is Unknown."""
    load_balancer_class: str = Field(default="", max_length=253)
    """load_balancer_class is the class of the load balancer that announces addresses; empty
    means the default of the cluster."""
    load_balancer: bool = False
    """load_balancer assigns an address of an IPPool to each Service whose spec.loadBalancerClass is
    service_class. The chart then grants writing the status of Services."""
    service_class: LabelKey = LOAD_BALANCER_CLASS
    """service_class is the spec.loadBalancerClass of these Services. Change it if the program that
    announces addresses serves only classes of its own, such as io.cilium/l2-announcer."""
    cozy_proxy: bool = False
    """cozy_proxy lets cozy-proxy of Cozystack route the addresses of claims whose spec.traffic is
    All. cozy-proxy must run on every node. The chart then grants writing Endpoints."""
    cluster_api: bool = False
    """cluster_api creates an IPAddress for each IPAddressClaim of Cluster API whose spec.poolRef
    names an IPPool. The chart then grants access to these kinds."""
    guard_addresses: bool = True
    """guard_addresses installs an admission policy with the chart: only this operator can put
    addresses of IPPools into Services. Without it, anyone who can create Services can take the
    address of another namespace, for example with spec.externalIPs."""
    unguarded_namespaces: CommaList = ("kube-system",)
    """unguarded_namespaces is a comma-separated list of the namespaces in which anyone who can
    create Services can put addresses of IPPools into them."""
    default_pool: str = Field(default="", max_length=253)
    """default_pool is the IPPool for Services of service_class without the annotation
    ipam.slipway.dev/pool; empty means none."""

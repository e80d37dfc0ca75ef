"""Settings of the network operator."""

from enum import StrEnum
from ipaddress import ip_address
from typing import Final

from pydantic import Field, field_validator

from libs.common.settings import CommaList, CommonSettings, operator_settings
from operators.network.api.v1alpha1.fields import parse_block
from operators.network.naming import OPERATOR_ID
from operators.network.resources import ClusterDns

_FAMILIES: Final = {"IPv4": 4, "IPv6": 6}


class Enforcement(StrEnum):
    """Enforcement says whether something in the cluster enforces a kind of policy."""

    UNKNOWN = "Unknown"
    ENFORCED = "Enforced"


class Settings(CommonSettings):
    """Settings of the network operator; each has a flag and an environment variable."""

    model_config = operator_settings(OPERATOR_ID)

    multus_poll_seconds: float = Field(default=60, ge=1)
    """multus_poll_seconds is how often the operator checks whether the cluster serves the kinds
    that a Network with backend Multus needs, while it does not."""

    protected_cidrs: str = Field(default="169.254.169.254/32,fd00:ec2::254/128")
    """protected_cidrs is a comma-separated list of addresses that no instance of a Network may send
    packets to, regardless of what its firewall allows; `none` protects nothing. Add the addresses
    of the pods, Services and nodes of the cluster."""

    ip_families: CommaList = ()
    """ip_families is a comma-separated list of the address families of pods: IPv4, IPv6, or both.
    NetworkPolicies contain blocks of these families only, because some network plugins ignore a
    whole policy if it has a block of another family. Empty means the families of the addresses of
    the operator's own pod."""

    dns_namespace: str = Field(default="kube-system", min_length=1, max_length=63)
    """dns_namespace is the namespace of the pods of the DNS service of the cluster. Instances can
    look up names even if protected_cidrs contains the addresses of pods. On OpenShift, it is
    openshift-dns."""

    dns_port: int = Field(default=53, ge=1, le=65535)
    """dns_port is the port on which these pods listen, in addition to 53. On OpenShift, it is
    5353."""

    pod_ips: CommaList = Field(default=(), json_schema_extra={"environment": ["POD_IPS"]})
    """pod_ips is a comma-separated list of the addresses of the operator's pod. If it is empty,
    ip_families defaults to both families."""

    multi_network_policy: Enforcement = Enforcement.UNKNOWN
    """multi_network_policy states whether the cluster enforces MultiNetworkPolicies on interfaces
    of guests: Unknown, or Enforced if you have tested that packets are dropped."""

    @property
    def protected_blocks(self) -> tuple[str, ...]:
        """The protected addresses in CIDR notation, one block each."""
        parts = (part.strip() for part in self.protected_cidrs.split(","))
        return tuple(part for part in parts if part and part != "none")

    @property
    def dns(self) -> ClusterDns:
        """The pods of the DNS service of the cluster."""
        return ClusterDns(self.dns_namespace, self.dns_port)

    @property
    def families(self) -> frozenset[int]:
        """The address families of pods: 4, 6, or both."""
        named = {_FAMILIES[each] for each in self.ip_families}
        own = {ip_address(each).version for each in self.pod_ips}
        return frozenset(named or own or _FAMILIES.values())

    @field_validator("ip_families")
    @classmethod
    def _check_ip_families(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if each not in _FAMILIES:
                raise ValueError(f"{each!r} is not an address family; use IPv4, IPv6 or IPv4,IPv6")
        return value

    @field_validator("pod_ips")
    @classmethod
    def _check_pod_ips(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            ip_address(each)
        return value

    @field_validator("protected_cidrs")
    @classmethod
    def _check_protected_cidrs(cls, value: str) -> str:
        for part in value.split(","):
            if part.strip() not in ("", "none"):
                parse_block(part.strip())
        return value

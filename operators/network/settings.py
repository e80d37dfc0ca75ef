"""Settings of the network operator."""

from enum import StrEnum

from pydantic import Field, field_validator

from libs.common.settings import CommonSettings, operator_settings
from operators.network.api.v1alpha1.fields import parse_block
from operators.network.naming import OPERATOR


class Enforcement(StrEnum):
    """Enforcement says whether something in the cluster enforces a kind of policy."""

    UNKNOWN = "Unknown"
    ENFORCED = "Enforced"


class Settings(CommonSettings):
    """Settings of the network operator; each has a flag and an environment variable."""

    model_config = operator_settings(OPERATOR)

    multus_poll_seconds: float = Field(default=60, ge=1)
    """multus_poll_seconds is how often a Network of backend Multus looks whether the cluster has
    come to serve the kinds that it needs."""

    protected_cidrs: str = Field(default="169.254.169.254/32,fd00:ec2::254/128")
    """protected_cidrs is a comma list of addresses that no instance of a Network may send packets
    to, whatever its firewall allows; `none` protects nothing. Add the pods, Services and nodes of
    the cluster"""

    multi_network_policy: Enforcement = Enforcement.UNKNOWN
    """multi_network_policy states whether the cluster enforces MultiNetworkPolicies on interfaces
    of guests: Unknown, or Enforced when you have seen packets dropped"""

    @property
    def protected_blocks(self) -> tuple[str, ...]:
        """The protected addresses in CIDR notation, one block each."""
        parts = (part.strip() for part in self.protected_cidrs.split(","))
        return tuple(part for part in parts if part and part != "none")

    @field_validator("protected_cidrs")
    @classmethod
    def _check_protected_cidrs(cls, value: str) -> str:
        for part in value.split(","):
            if part.strip() not in ("", "none"):
                parse_block(part.strip())
        return value

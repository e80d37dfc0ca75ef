"""Settings of the network operator."""

from pydantic import Field

from libs.common.settings import CommonSettings, operator_settings
from operators.network.naming import OPERATOR


class Settings(CommonSettings):
    """Settings of the network operator; each has a flag and an environment variable."""

    model_config = operator_settings(OPERATOR)

    multus_poll_seconds: float = Field(default=60, ge=1)
    """multus_poll_seconds is how often a Network of backend Multus looks whether the cluster has
    come to serve the kinds that it needs."""

"""Settings of the compute operator."""

from pydantic import Field

from libs.common.settings import CommonSettings, operator_settings
from operators.compute.naming import OPERATOR


class Settings(CommonSettings):
    """Settings of the compute operator; each has a flag and an environment variable."""

    model_config = operator_settings(OPERATOR)

    missing_api_poll_seconds: float = Field(default=30, ge=1)
    """missing_api_poll_seconds is how often an Instance looks whether the cluster has come to serve
    the kinds of KubeVirt."""

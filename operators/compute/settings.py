"""Settings of the compute operator."""

from pydantic import Field

from libs.common.settings import CommonSettings, operator_settings
from operators.compute.naming import OPERATOR


class Settings(CommonSettings):
    """Settings of the compute operator; each has a flag and an environment variable."""

    model_config = operator_settings(OPERATOR)

    missing_api_poll_seconds: float = Field(default=30, ge=1)
    """missing_api_poll_seconds is the time between two checks of an Instance for the kinds of
    KubeVirt, while the cluster does not serve them."""

    operation_history_limit: int = Field(default=20, ge=0, le=1000)
    """operation_history_limit is the number of finished Operations that are kept of each Instance;
    older ones are deleted. 0 keeps all."""

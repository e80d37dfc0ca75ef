"""Settings of the volumes operator."""

from pydantic import Field

from libs.common.settings import CommonSettings, operator_settings
from operators.volumes.naming import OPERATOR_ID


class Settings(CommonSettings):
    """Settings of the volumes operator; each has a flag and an environment variable."""

    model_config = operator_settings(OPERATOR_ID)

    snapshot_api_poll_seconds: float = Field(default=60, ge=1)
    """snapshot_api_poll_seconds is how often the operator checks whether the cluster serves the
    kinds of snapshots that a DemoVolume needs, while it does not."""

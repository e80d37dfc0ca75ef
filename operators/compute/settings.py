"""Settings of the compute operator."""

from pydantic import Field

from libs.common.settings import CommaList, CommonSettings, operator_settings
from operators.compute.naming import OPERATOR_ID


class Settings(CommonSettings):
    """Settings of the compute operator; each has a flag and an environment variable."""

    model_config = operator_settings(OPERATOR_ID)

    missing_api_poll_seconds: float = Field(default=30, ge=1)
    """missing_api_poll_seconds is how often the operator checks whether the cluster serves the
    kinds of KubeVirt and CDI, while it does not."""

    image_hosts: CommaList = ()
    """image_hosts is a comma-separated list of the hosts from which images may be downloaded, such
    as `quay.io,*.example.com`. Empty allows all hosts except addresses of nodes and importers
    themselves, which are loopback and link-local addresses, and metadata services."""

    operation_history_limit: int = Field(default=20, ge=0, le=1000)
    """operation_history_limit is the number of finished Operations that the operator keeps for
    each Instance; it deletes older ones. 0 keeps all."""

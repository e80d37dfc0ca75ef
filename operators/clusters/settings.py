"""Settings of the clusters operator."""

from pydantic import Field

from libs.common.settings import CommonSettings, operator_settings
from operators.clusters.naming import OPERATOR_ID


class Settings(CommonSettings):
    """Settings of the clusters operator; each has a flag and an environment variable."""

    model_config = operator_settings(OPERATOR_ID)

    api_url: str = Field(default="https://{service}.{namespace}.svc:{port}", min_length=1)
    """api_url is the URL at which the operator reaches the API of a cluster that it created: a
    pattern with {service}, {namespace}, {address} and {port}. The default uses the Service of the
    API. For an operator outside of the cluster, use https://{address}:{port}."""

    api_timeout_seconds: float = Field(default=5, gt=0, le=60)
    """api_timeout_seconds is how long the API of a cluster can take to respond."""

    api_poll_seconds: float = Field(default=15, ge=1)
    """api_poll_seconds is the time between two queries of the nodes of a cluster."""

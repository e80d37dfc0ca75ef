"""Settings of the pulsarconsumer operator."""

from pydantic import Field

from libs.common.settings import CommonSettings, operator_settings
from operators.pulsarconsumer.naming import OPERATOR_ID


class Settings(CommonSettings):
    """Settings of the pulsarconsumer operator; each has a flag and an environment variable."""

    model_config = operator_settings(OPERATOR_ID)

    consumer_image: str = Field(
        default="slipway/pulsarconsumer-app:dev", min_length=1, max_length=1024
    )
    """consumer_image is the image of consumers whose PulsarConsumer names none."""

    platform_assigns_user_ids: bool = False
    """platform_assigns_user_ids leaves user and groups of consumers to the platform: their pods
    have no runAsUser, runAsGroup and fsGroup, unless the PulsarConsumer sets them in its
    template."""

    poll_seconds: float = Field(default=30, ge=0, le=3600)
    """poll_seconds is the time between two queries of the broker for the status of a PulsarConsumer
    without autoscaling; with 0, the broker is only queried if the spec requires it."""

    broker_timeout_seconds: float = Field(default=5, gt=0, le=60)
    """broker_timeout_seconds is the time that one request to a broker may take."""

    broker_patience_seconds: float = Field(default=0.25, ge=0, le=5)
    """broker_patience_seconds is the time that a reconcile waits for a broker that responded last
    time; the response of a slower broker is used later."""

    max_broker_looks: int = Field(default=16, ge=1, le=1000)
    """max_broker_looks is the number of PulsarConsumers whose brokers are queried at a time."""

    allow_loopback_brokers: bool = False
    """allow_loopback_brokers allows brokers at loopback addresses, for development on one machine.
    In a cluster, such an address belongs to the pod of the operator."""

"""Settings of the jmxexporter operator."""

from typing import Literal

from pydantic import Field

from libs.common.settings import operator_settings
from libs.common.webhooks import WebhookSettings
from operators.jmxexporter.naming import OPERATOR_ID


class Settings(WebhookSettings):
    """Settings of the jmxexporter operator; each has a flag and an environment variable."""

    model_config = operator_settings(OPERATOR_ID)

    injector_image: str = "registry.invalid/slipway/jmxexporter:dev"
    """injector_image is the image of the ephemeral containers; the chart sets the image of the
    operator. The default cannot be pulled, so that nobody else can publish an image under it."""
    injector_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """injector_pull_policy is when the image of the ephemeral containers is pulled."""
    signing_secret: str = ""
    """signing_secret is the name of a Secret in the namespace of the operator, for the key that
    signs configurations; the chart creates it. Without one each new rule needs an injector."""
    start_timeout_seconds: float = Field(default=300, ge=1)
    """start_timeout_seconds is how long an ephemeral container may take to start before the
    operator continues with the next pod."""
    stop_timeout_seconds: float = Field(default=120, ge=1)
    """stop_timeout_seconds is how long the deletion of a PrometheusJmxExporter waits for an
    endpoint to stop."""

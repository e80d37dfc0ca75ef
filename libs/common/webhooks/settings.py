"""Settings of operators that serve admission webhooks."""

from libs.common.settings import CommonSettings


class WebhookSettings(CommonSettings):
    """Settings of a process with a webhook; the chart sets all of them."""

    webhook_service: str = ""
    """webhook_service is the name of the Service by which the API server reaches the webhook, and
    of the Secret with its certificate; empty means that there is no webhook."""
    webhook_configuration: str = ""
    """webhook_configuration is the name of the webhook configuration that is to trust the
    certificate."""
    webhook_bind_address: str = ":9443"
    """webhook_bind_address is the address that serves the webhook."""

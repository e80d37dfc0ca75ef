"""Settings of operators that serve admission webhooks."""

from libs.common.settings import CommonSettings


class WebhookSettings(CommonSettings):
    """Settings of a process with webhooks; the chart sets all but the first."""

    webhooks: bool = False
    """webhooks enables the admission webhooks of the operator; the chart then creates what
    they need."""
    webhook_service: str = ""
    """webhook_service is the name of the Service by which the API server reaches the webhooks, and
    of the Secret in which the operator keeps their certificate."""
    webhook_certificate_secret: str = ""
    """webhook_certificate_secret is the name of a Secret with tls.crt, tls.key and ca.crt that
    others issue and renew, such as cert-manager. The operator only reads it. Empty means that the
    operator issues its own certificate."""
    webhook_configuration: str = ""
    """webhook_configuration is the name of the webhook configuration in which the operator
    writes the authority of the certificate."""
    webhook_validating_configuration: str = ""
    """webhook_validating_configuration is the name of the configuration of validating webhooks in
    which the operator writes the authority of the certificate."""
    webhook_bind_address: str = ":9443"
    """webhook_bind_address is the address that serves the webhook."""

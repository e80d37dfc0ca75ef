"""Settings of the app, read from environment variables: PULSAR_CONSUMER_TOPIC and so on.

Secrets are never values of variables: these hold the paths of files.
"""

from operators.pulsarconsumer.app.settings.choices import (
    DecryptFailure,
    Mismatch,
    SchemaType,
    SubscriptionType,
    Switch,
)
from operators.pulsarconsumer.app.settings.connection import AuthType, ConnectionSettings
from operators.pulsarconsumer.app.settings.load import (
    PREFIX,
    SettingsInvalid,
    find_unknown,
    load,
    load_settings,
)
from operators.pulsarconsumer.app.settings.settings import Settings

__all__ = [
    "PREFIX",
    "AuthType",
    "ConnectionSettings",
    "DecryptFailure",
    "Mismatch",
    "SchemaType",
    "Settings",
    "SettingsInvalid",
    "SubscriptionType",
    "Switch",
    "find_unknown",
    "load",
    "load_settings",
]

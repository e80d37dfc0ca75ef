"""Settings of the app, read from environment variables: PULSAR_CONSUMER_TOPIC and so on.

Secrets are never values of variables: these hold the paths of files.
"""

from operators.pulsarconsumer.app.settings.choices import Mismatch as Mismatch
from operators.pulsarconsumer.app.settings.choices import SchemaType as SchemaType
from operators.pulsarconsumer.app.settings.choices import SubscriptionType as SubscriptionType
from operators.pulsarconsumer.app.settings.choices import Switch as Switch
from operators.pulsarconsumer.app.settings.connection import AuthType as AuthType
from operators.pulsarconsumer.app.settings.connection import (
    ConnectionSettings as ConnectionSettings,
)
from operators.pulsarconsumer.app.settings.load import PREFIX as PREFIX
from operators.pulsarconsumer.app.settings.load import SettingsInvalid as SettingsInvalid
from operators.pulsarconsumer.app.settings.load import find_unknown as find_unknown
from operators.pulsarconsumer.app.settings.load import load as load
from operators.pulsarconsumer.app.settings.load import load_settings as load_settings
from operators.pulsarconsumer.app.settings.settings import Settings as Settings

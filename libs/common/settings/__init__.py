"""Settings of an operator: declared as fields, read from flags and environment variables."""

from libs.common.settings.addresses import BindAddress, parse_bind_address
from libs.common.settings.cli import SettingSpec, describe_settings, parse_settings
from libs.common.settings.fields import (
    CommaList,
    CommonSettings,
    build_settings,
    operator_settings,
)

__all__ = [
    "BindAddress",
    "CommaList",
    "CommonSettings",
    "SettingSpec",
    "build_settings",
    "describe_settings",
    "operator_settings",
    "parse_bind_address",
    "parse_settings",
]

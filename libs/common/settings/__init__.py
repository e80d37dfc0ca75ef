"""Settings of an operator: declared as fields, read from flags and environment variables."""

from libs.common.settings.cli import SettingSpec as SettingSpec
from libs.common.settings.cli import describe_settings as describe_settings
from libs.common.settings.cli import parse_settings as parse_settings
from libs.common.settings.fields import CommaList as CommaList
from libs.common.settings.fields import CommonSettings as CommonSettings
from libs.common.settings.fields import build_settings as build_settings
from libs.common.settings.fields import operator_settings as operator_settings

"""Turns environment variables into settings, or into all that is wrong with them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from operators.pulsarconsumer.app.settings.connection import ConnectionSettings
from operators.pulsarconsumer.app.settings.settings import Settings

PREFIX: Final = "PULSAR_CONSUMER_"
"""What the variables of the app begin with."""

# The kubelet sets these for each Service in the namespace, such as one called pulsar-consumer.
_SERVICE_VARIABLE: Final = re.compile(
    r"(^|_)(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$"
)


class SettingsInvalid(Exception):
    """The environment is not what the app takes.

    Attributes:
        faults: One sentence for each fault, which names the variable.
    """

    def __init__(self, faults: list[str]) -> None:
        """Keep the faults; the text has one a line."""
        self.faults = faults
        super().__init__("\n".join(faults))


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of the consumer; see `load`."""
    return load(Settings, environ, PREFIX)


def load[S: ConnectionSettings](settings: type[S], environ: Mapping[str, str], prefix: str) -> S:
    """Return settings; a variable that is empty counts as absent.

    Args:
        settings: Which settings.
        environ: Variables by name.
        prefix: What the variables begin with.

    Raises:
        SettingsInvalid: Variables are wrong or missing; names all of them.
    """
    values: dict[str, str] = {}
    for name, field in settings.model_fields.items():
        for variable in _variables(name, field, prefix):
            if value := environ.get(variable, "").strip():
                values.setdefault(name, value)
    try:
        return settings(**values)  # type: ignore[arg-type]  # pydantic makes the types of strings.
    except ValidationError as err:
        faults = [_describe(settings, prefix, error) for error in err.errors(include_url=False)]
        raise SettingsInvalid(faults) from None


def find_unknown(environ: Mapping[str, str]) -> list[str]:
    """Return the variables with our prefix that are no settings: typing errors most often."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    return sorted(
        name
        for name in environ
        if name.startswith(PREFIX)
        and name not in known
        and not _SERVICE_VARIABLE.search(name.removeprefix(PREFIX))
    )


def _variables(name: str, field: FieldInfo, prefix: str) -> tuple[str, ...]:
    extra = field.json_schema_extra
    standard = extra.get("environment", ()) if isinstance(extra, dict) else ()
    return (f"{prefix}{name.upper()}", *map(str, standard if isinstance(standard, list) else ()))


def _describe(settings: type[ConnectionSettings], prefix: str, error: ErrorDetails) -> str:
    message = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        # The text of a check on several settings names them.
        names = sorted(settings.model_fields, key=len, reverse=True)
        # Not within names of topics, which may contain the same words.
        pattern = rf"(?<![-\w./'])({'|'.join(names)})(?![-\w./'])"
        return re.sub(pattern, lambda found: f"{prefix}{found[0].upper()}", message)
    variable = f"{prefix}{str(error['loc'][0]).upper()}"
    if error["type"] == "missing":
        return f"{variable}: must be set"
    return f"{variable}: {message}, not {error['input']!r}"

"""Turns the command line and the environment of a process into settings.

Flags and variables are strings that the same validators check, so both speak one grammar; that is
why the parser is built here from the fields and not by pydantic-settings, whose flags take JSON and
whose help knows neither units nor the names of variables.
"""

import argparse
import difflib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TextIO

import structlog
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined
from pydantic_settings import SettingsError

from libs.common.logs import configure_logs
from libs.common.redaction import REDACTED, is_sensitive_key, redact_text
from libs.common.settings.fields import CommonSettings, standard_environment

# The kubelet sets these for each Service in the namespace: a Service that is called
# podset-metrics gives PODSET_METRICS_PORT_8080_TCP_ADDR. They are nobody's typing error.
_SERVICE_VARIABLE = re.compile(
    r"_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)
_UNITS = {"seconds": "seconds", "bytes": "bytes", "ratio": "ratio", "percent": "percent"}


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """One setting as `--help`, the chart and the reference show it."""

    name: str
    flag: str
    environment: tuple[str, ...]
    """Variables that give the value, best first."""
    default: str
    """The default as one writes it in a flag; empty for none."""
    unit: str
    """The unit, such as `seconds`; empty where there is none."""
    required: bool
    description: str
    tuning: bool
    """Whether the setting is left out of lists, because nearly everyone keeps the default."""


def describe_settings(settings: type[CommonSettings]) -> list[SettingSpec]:
    """Return every setting of an operator, in the order of the fields."""
    return [_describe(settings, name, field) for name, field in settings.model_fields.items()]


def _describe(settings: type[CommonSettings], name: str, field: FieldInfo) -> SettingSpec:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    return SettingSpec(
        name=name,
        flag=f"--{name.replace('_', '-')}",
        environment=(
            f"{settings.environment_prefix()}{name.upper()}",
            *standard_environment(field),
        ),
        default="" if field.default is PydanticUndefined else _render_value(field.default),
        unit=str(extra.get("unit", _UNITS.get(name.rpartition("_")[2], ""))),
        required=field.is_required(),
        description=" ".join((field.description or "").split()),
        tuning=bool(extra.get("tuning")),
    )


def _render_value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple() | list():
            return ",".join(str(item) for item in value)
        case _:
            return str(value)


def parse_settings[S: CommonSettings](
    settings: type[S],
    argv: Sequence[str],
    environ: Mapping[str, str] | None = None,
    *,
    epilog: str = "",
    stderr: TextIO | None = None,
) -> S:
    """Parse the settings of a process from its flags and its environment.

    Prints the help and exits with 0 for `--help`. Prints one line for each bad value and exits
    with 2. An unknown variable with the operator's prefix is logged, after the log was configured
    as the settings ask: as a warning if its name resembles a known one, since it is most often a
    typing error.

    Args:
        settings: The settings class of the operator.
        argv: Arguments after the program's name.
        environ: Read in place of the process's own environment for the warning.
        epilog: What the help ends with, such as further commands.
        stderr: Where errors go, sys.stderr by default.
    """
    out = stderr or sys.stderr
    flags = _build_parser(settings, out, epilog).parse_args(list(argv))
    values = {name: value for name, value in vars(flags).items() if value is not None}
    try:
        parsed = settings(**values)
    except ValidationError as err:
        _fail(settings, out, render_errors(settings, err, values))
    except SettingsError as err:
        _fail(settings, out, [str(err)])
    unknown = find_unknown_variables(settings, os.environ if environ is None else environ)
    if unknown:
        configure_logs(parsed.log_level, parsed.log_format)
    for variable, closest in unknown.items():
        log = structlog.get_logger("settings")
        if closest:
            log.warning(
                "Ignoring unknown environment variable", variable=variable, did_you_mean=closest
            )
        else:
            # It may belong to the code of the operator, which can read it as it likes.
            log.info("Environment variable is no setting", variable=variable)
    return parsed


def find_unknown_variables(
    settings: type[CommonSettings], environ: Mapping[str, str]
) -> dict[str, str]:
    """Find variables with the operator's prefix that no setting reads.

    Returns:
        The unknown variables, each with the closest known one or "".
    """
    prefix = settings.environment_prefix()
    known = {spec.environment[0] for spec in describe_settings(settings)}
    unknown: dict[str, str] = {}
    for variable in sorted(environ):
        name = variable.upper()
        if name.startswith(prefix) and name not in known and not _SERVICE_VARIABLE.search(name):
            unknown[variable] = next(iter(difflib.get_close_matches(name, known, 1, 0.8)), "")
    return unknown


def render_errors(
    settings: type[CommonSettings], error: ValidationError, flags: Mapping[str, str]
) -> list[str]:
    """Render one line for each bad value, with the name that the user gave it by."""
    specs = {spec.name: spec for spec in describe_settings(settings)}
    return [_render_error(specs, details, flags) for details in error.errors()]


def _render_error(
    specs: Mapping[str, SettingSpec], details: ErrorDetails, flags: Mapping[str, str]
) -> str:
    message = details["msg"].removeprefix("Value error, ")
    spec = specs.get(str(details["loc"][0])) if details["loc"] else None
    if spec is None:
        return message
    source = spec.flag if spec.name in flags else spec.environment[0]
    if details["type"] == "missing":
        return f"{spec.environment[0]} or {spec.flag}: a value is required"
    given = REDACTED if is_sensitive_key(spec.name) else redact_text(repr(details["input"]))
    return f"{source}: {message[:1].lower()}{message[1:]}, got {given}"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, written to the given stream."""

    def __init__(self, operator_id: str, stderr: TextIO, epilog: str) -> None:
        super().__init__(
            prog=operator_id,
            usage=f"{operator_id} [--flag value ...]",
            description=f"Run the {operator_id} operator.",
            epilog=f"A flag overrides the environment variable shown after it.\n{epilog}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self._stderr = stderr

    def error(self, message: str) -> NoReturn:
        self._stderr.write(f"{self.prog}: {message}; see {self.prog} --help\n")
        raise SystemExit(2)


def _build_parser(
    settings: type[CommonSettings], stderr: TextIO, epilog: str
) -> argparse.ArgumentParser:
    parser = _Parser(settings.operator_id(), stderr, epilog)
    for spec in describe_settings(settings):
        is_switch = settings.model_fields[spec.name].annotation is bool
        parser.add_argument(
            spec.flag,
            dest=spec.name,
            metavar="BOOL" if is_switch else spec.unit.upper() or "VALUE",
            # `--leader-elect` alone means true, as with Go's flags.
            nargs="?" if is_switch else None,
            const="true" if is_switch else None,
            help=argparse.SUPPRESS if spec.tuning else _render_help(spec).replace("%", "%%"),
        )
    return parser


def _render_help(spec: SettingSpec) -> str:
    unit = f" {spec.unit}" if spec.unit and spec.unit != "ratio" else ""
    default = f"default {spec.default}{unit}" if spec.default else "no default"
    # The name that the sentence begins with is in the flag already.
    text = re.sub(rf"^{spec.name} (is|are) ", "", spec.description)
    text = re.sub(rf"^{spec.name} ", "", text)
    text = text[:1].upper() + text[1:]
    return f"{text} [{default}; ${', $'.join(spec.environment)}]"


def _fail(settings: type[CommonSettings], stderr: TextIO, lines: Sequence[str]) -> NoReturn:
    stderr.writelines(f"{settings.operator_id()}: {line}\n" for line in lines)
    raise SystemExit(2)

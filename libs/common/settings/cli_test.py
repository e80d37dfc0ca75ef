"""Tests of settings as a process reads them: flags, variables, help and errors."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from pydantic import Field, SecretStr

from libs.common.settings import (
    CommonSettings,
    describe_settings,
    operator_settings,
    parse_settings,
)
from libs.common.settings.cli import _SERVICE_VARIABLE, find_unknown_variables


class Settings(CommonSettings):
    """Settings of an operator that exists only here."""

    model_config = operator_settings("podset")

    grow_ratio: float = Field(default=0.5, ge=0, le=1)
    """grow_ratio is the share of pods that are made at a time."""


class StrictSettings(CommonSettings):
    """Settings with a required one and with a secret one."""

    model_config = operator_settings("strict")

    server: str
    """server is the host to ask."""
    admin_token: SecretStr = Field(default=SecretStr(""), max_length=3)
    """admin_token is what the server wants to see."""


@pytest.fixture(autouse=True)
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("POD_NAMESPACE", "POD_NAME", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def parse_failing(settings: type[CommonSettings], *argv: str) -> list[str]:
    stderr = io.StringIO()
    with pytest.raises(SystemExit) as stopped:
        parse_settings(settings, argv, {}, stderr=stderr)
    assert stopped.value.code == 2
    return stderr.getvalue().splitlines()


def test_defaults_hold_without_flags_and_variables() -> None:
    settings = parse_settings(Settings, [], {})

    assert settings.max_concurrent_reconciles == 4
    assert settings.lease_name == "podset"
    assert settings.namespaces("here") == ("here",)
    assert settings.leader_elect


def test_flag_wins_over_variable(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PODSET_LOG_LEVEL", "ERROR")
    environment.setenv("PODSET_MAX_CONCURRENT_RECONCILES", "8")

    settings = parse_settings(Settings, ["--log-level=debug"], {})

    assert (settings.log_level, settings.max_concurrent_reconciles) == ("debug", 8)


def test_standard_variables_are_read_without_prefix(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("POD_NAMESPACE", "operators")
    environment.setenv("POD_NAME", "podset-0")
    environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/")

    settings = parse_settings(Settings, [], {})

    assert (settings.pod_namespace, settings.pod_name) == ("operators", "podset-0")
    assert settings.otlp_endpoint == "http://collector:4318"
    assert settings.namespaces() == ("operators",)


def test_prefixed_variable_wins_over_standard_one(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("POD_NAMESPACE", "standard")
    environment.setenv("PODSET_POD_NAMESPACE", "ours")

    assert parse_settings(Settings, [], {}).pod_namespace == "ours"


@pytest.mark.parametrize(
    ("given", "expected"),
    [("b, a,", ("a", "b")), ("*", ()), ("a,*", ()), ("", ("operators",))],
)
def test_namespaces_come_from_a_comma_list(
    environment: pytest.MonkeyPatch, given: str, expected: tuple[str, ...]
) -> None:
    environment.setenv("POD_NAMESPACE", "operators")
    environment.setenv("PODSET_WATCH_NAMESPACES", given)

    assert parse_settings(Settings, [], {}).namespaces() == expected
    assert parse_settings(Settings, ["--watch-namespaces", given], {}).namespaces() == expected


@pytest.mark.parametrize(
    ("targets", "selector", "expected"),
    [
        ("a,b", "", ("a", "b")),
        ("", "", ()),
        ("*", "", ()),
        # The operator finds the namespaces of a selector at run time.
        ("", "tenant=yes", ("operators",)),
    ],
)
def test_empty_list_means_all_namespaces_if_the_lifecycle_manager_fills_it(
    environment: pytest.MonkeyPatch, targets: str, selector: str, expected: tuple[str, ...]
) -> None:
    environment.setenv("POD_NAMESPACE", "operators")
    environment.setenv("PODSET_WATCH_ALL_BY_DEFAULT", "true")
    environment.setenv("PODSET_WATCH_NAMESPACES", targets)
    environment.setenv("PODSET_WATCH_NAMESPACE_SELECTOR", selector)

    assert parse_settings(Settings, [], {}).namespaces() == expected


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--leader-elect"], True),
        (["--leader-elect=false"], False),
        (["--leader-elect", "no"], False),
        ([], True),
    ],
)
def test_switch_takes_an_optional_value(argv: list[str], expected: bool) -> None:
    assert parse_settings(Settings, argv, {}).leader_elect is expected


def test_each_bad_value_is_one_line_with_its_source(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PODSET_LEASE_DURATION_SECONDS", "soon")

    lines = parse_failing(Settings, "--max-concurrent-reconciles=0", "--metrics-bind-address=x")

    assert len(lines) == 3
    assert lines[0].startswith("podset: --max-concurrent-reconciles: ")
    assert lines[0].endswith("got '0'")
    assert lines[1].startswith("podset: PODSET_LEASE_DURATION_SECONDS: ")
    assert "'0' to disable" in lines[2]


@pytest.mark.parametrize(
    "flag",
    [
        "--watch-namespaces=good,Bad_One",
        "--watch-namespaces=team/app",
        "--pod-namespace=Operators",
        "--pod-namespace=*",
        "--lease-name=my_lease",
    ],
)
def test_name_that_the_api_server_would_refuse_for_ever_is_refused_at_once(flag: str) -> None:
    (line,) = parse_failing(Settings, flag)

    assert line.startswith(f"podset: {flag.partition('=')[0]}: ")
    assert "name" in line


def test_missing_value_names_variable_and_flag() -> None:
    assert parse_failing(StrictSettings) == [
        "strict: STRICT_SERVER or --server: a value is required"
    ]


def test_secret_value_is_not_repeated_in_its_error() -> None:
    lines = parse_failing(StrictSettings, "--server=x", "--admin-token=canary")

    assert len(lines) == 1
    assert "--admin-token" in lines[0]
    assert "canary" not in lines[0]


def test_password_in_a_url_is_not_repeated_in_its_error() -> None:
    lines = parse_failing(Settings, "--otlp-endpoint=ftp://user:canary@collector")

    assert "must be a URL" in lines[0]
    assert "canary" not in lines[0]


def test_unknown_flag_is_one_line() -> None:
    lines = parse_failing(Settings, "--leader=1")

    assert lines == ["podset: unrecognized arguments: --leader=1; see podset --help"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--lease-duration-seconds=10"], "lease_duration_seconds (10) must be greater than"),
        (["--retry-period-seconds=8.4"], "renew_deadline_seconds (10) must be greater than 1.2 x"),
        (["--backoff-max-seconds=0.1"], "backoff_max_seconds (0.1) must not be less than"),
    ],
)
def test_settings_that_contradict_are_refused(argv: list[str], words: str) -> None:
    lines = parse_failing(Settings, *argv)

    assert len(lines) == 1
    assert words in lines[0]


def test_unknown_variable_is_warned_about_with_the_closest_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parse_settings(Settings, [], {"PODSET_LEADER_ELCT": "false", "OTHER": "1"})

    line = json.loads(capsys.readouterr().err)
    assert line["level"] == "warning"
    assert line["variable"] == "PODSET_LEADER_ELCT"
    assert line["did_you_mean"] == "PODSET_LEADER_ELECT"


def test_variable_that_resembles_no_setting_is_no_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It may belong to the code of the operator."""
    parse_settings(Settings, [], {"PODSET_SCHEDULER_URL": "http://scheduler"})

    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["variable"]) == ("info", "PODSET_SCHEDULER_URL")


@pytest.mark.parametrize(
    "variable",
    [
        "PODSET_SERVICE_HOST",
        "PODSET_SERVICE_PORT_METRICS",
        "PODSET_METRICS_PORT",
        "PODSET_METRICS_PORT_8080_TCP_ADDR",
    ],
)
def test_variables_of_services_are_no_typing_errors(variable: str) -> None:
    assert find_unknown_variables(Settings, {variable: "x"}) == {}


def test_no_setting_has_the_name_of_a_service_variable() -> None:
    names = [spec.environment[0] for spec in describe_settings(Settings)]

    assert [name for name in names if _SERVICE_VARIABLE.search(name)] == []


def test_help_shows_variable_default_and_unit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_settings(Settings, ["--help"], {})

    text = " ".join(capsys.readouterr().out.split())
    assert stopped.value.code == 0
    assert "--drain-timeout-seconds SECONDS The time that running" in text
    assert "[default 20 seconds; $PODSET_DRAIN_TIMEOUT_SECONDS]" in text
    assert "[no default; $PODSET_POD_NAMESPACE, $POD_NAMESPACE]" in text
    assert "[default 0.5; $PODSET_GROW_RATIO]" in text


def test_settings_for_tuning_work_although_the_help_leaves_them_out(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("PODSET_RESYNC_PERIOD_SECONDS", "60")
    variables = {"PODSET_RESYNC_PERIOD_SECONDS": "60"}
    settings = parse_settings(Settings, ["--min-interval-seconds=5"], variables)

    assert (settings.resync_period_seconds, settings.min_interval_seconds) == (60, 5)
    assert find_unknown_variables(Settings, variables) == {}
    with pytest.raises(SystemExit):
        parse_settings(Settings, ["--help"], {})
    assert "resync" not in capsys.readouterr().out


def test_few_settings_are_common_to_all_operators() -> None:
    listed = [spec for spec in describe_settings(CommonSettings) if not spec.tuning]

    assert len(listed) <= 22, "add a setting only for what users must decide"


def test_every_setting_is_described_beginning_with_its_name() -> None:
    bad = [
        spec.name
        for spec in describe_settings(Settings)
        if not spec.description.startswith(f"{spec.name} ") or not spec.description.endswith(".")
    ]

    assert bad == []


def test_settings_cannot_be_changed() -> None:
    settings = parse_settings(Settings, [], {})

    with pytest.raises(ValueError, match="frozen"):
        settings.log_level = "debug"

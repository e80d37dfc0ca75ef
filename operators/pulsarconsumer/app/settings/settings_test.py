"""Which values the environment may have, and how errors are reported."""

from __future__ import annotations

import pytest

from operators.pulsarconsumer.app.settings import (
    AuthType,
    Settings,
    SettingsInvalid,
    find_unknown,
    load_settings,
)

LEAST = {"SERVER": "pulsar://pulsar:6650", "TOPIC": "my-topic", "SUBSCRIPTION_NAME": "my-sub"}


def load(**values: str) -> Settings:
    chosen = {**LEAST, **values}
    return load_settings({f"PULSAR_CONSUMER_{name}": value for name, value in chosen.items()})


def faults(**values: str) -> str:
    with pytest.raises(SettingsInvalid) as caught:
        load(**values)
    return str(caught.value)


def test_server_topic_and_subscription_are_enough() -> None:
    settings = load()

    assert settings.all_topics == ("persistent://public/default/my-topic",)
    assert settings.retry_topic_name == "persistent://public/default/my-topic-my-sub-RETRY"
    assert settings.dead_letter_topic_name == "persistent://public/default/my-topic-my-sub-DLQ"
    assert settings.tls_verify_hostname
    assert not settings.retry_policy.dead_letter


@pytest.mark.parametrize(
    ("values", "ratio"),
    [
        ({}, 1),
        ({"HANDLER": "shop:handle"}, 0),
        ({"HANDLER": "shop:handle", "LOG_SAMPLE_RATIO": "1"}, 1),
        ({"LOG_SAMPLE_RATIO": "0.5"}, 0.5),
    ],
)
def test_messages_are_logged_by_default_only_without_a_handler(
    values: dict[str, str], ratio: float
) -> None:
    assert load(**values).line_options.sample_ratio == ratio


def test_empty_variable_counts_as_absent() -> None:
    assert load(MAX_IN_FLIGHT="", HANDLER="  ").max_in_flight == 1


def test_server_with_an_ipv6_address_is_refused() -> None:
    assert "does not support: use a host name" in faults(SERVER="pulsar://[::1]:6650")


def test_all_faults_are_told_by_their_variables() -> None:
    reported = faults(
        SERVER="kafka://x", MAX_IN_FLIGHT="0", SUBSCRIPTION_TYPE="shared", HANDLER="a b"
    )

    begin = "must begin with pulsar://, pulsar+ssl://, http:// or https://"
    types = "'Exclusive', 'Shared', 'Failover' or 'KeyShared'"
    assert reported.splitlines() == [
        f"PULSAR_CONSUMER_SERVER: {begin}, not 'kafka://x'",
        f"PULSAR_CONSUMER_SUBSCRIPTION_TYPE: Input should be {types}, not 'shared'",
        "PULSAR_CONSUMER_MAX_IN_FLIGHT: Input should be greater than or equal to 1, not '0'",
        "PULSAR_CONSUMER_HANDLER: String should match pattern '^$|^[\\w.]+:[\\w.]+$', not 'a b'",
    ]


def test_missing_variable_is_named() -> None:
    with pytest.raises(SettingsInvalid, match="PULSAR_CONSUMER_SERVER: must be set"):
        load_settings({})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"TOPIC": ""}, "must be set, not none"),
        ({"TOPICS": "a,b"}, "not PULSAR_CONSUMER_TOPIC and PULSAR_CONSUMER_TOPICS"),
        ({"TOPIC": "kafka://x"}, "persistent://a/b/c: 'kafka://x'"),
        ({"AUTH_TYPE": "Token"}, "PULSAR_CONSUMER_AUTH_TYPE Token needs PULSAR_CONSUMER_TOKEN_FI"),
        ({"AUTH_TYPE": "Basic"}, "BASIC_USERNAME_FILE and PULSAR_CONSUMER_BASIC_PASSWORD_FILE"),
        (
            {"AUTH_TYPE": "TLS", "TLS_CERTIFICATE_FILE": "/c", "TLS_KEY_FILE": "/k"},
            "pulsar+ssl://",
        ),
        ({"TLS_KEY_FILE": "/k"}, "set both PULSAR_CONSUMER_TLS_CERTIFICATE_FILE"),
        ({"SCHEMA_TYPE": "Avro"}, "Avro needs PULSAR_CONSUMER_SCHEMA_FILE"),
        ({"SCHEMA_FILE": "/s"}, "has no effect with"),
        ({"HANDLER_BATCH": "true"}, "needs PULSAR_CONSUMER_HANDLER and"),
        ({"RETRY_MAX_DELAY_SECONDS": "0.5"}, "must not be less than"),
        ({"ACK_TIMEOUT_SECONDS": "5"}, "must be 0 or at least 10"),
        (
            {"ENCRYPTION_PRIVATE_KEY_FILE": "/k", "DEAD_LETTER": "Enabled"},
            "PULSAR_CONSUMER_ENCRYPTION_PUBLIC_KEY_FILE must be set",
        ),
        ({"DEAD_LETTER": "Enabled", "DEAD_LETTER_TOPIC": "my-topic"}, "is consumed itself"),
        (
            {
                "DEAD_LETTER": "Enabled",
                "DEAD_LETTER_TOPIC": "x",
                "RETRY_STRATEGY": "RetryTopic",
                "RETRY_TOPIC": "x",
            },
            "are both persistent://public/default/x",
        ),
        (
            {"DEAD_LETTER": "Enabled", "DEAD_LETTER_TOPIC": "non-persistent://a/b/c"},
            "must be persistent, or messages would be lost",
        ),
        ({"TOPIC": "", "TOPIC_PATTERN": "a/b/("}, "is not a regular expression"),
        (
            {"TOPIC": "", "TOPIC_PATTERN": "persistent://a/b/.*", "DEAD_LETTER": "Enabled"},
            "would be consumed again",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(values: dict[str, str], expected: str) -> None:
    assert expected in faults(**values)


def test_pattern_may_match_everything_while_no_copies_are_made() -> None:
    assert load(TOPIC="", TOPIC_PATTERN="persistent://a/b/.*").all_topics == ()


def test_names_of_topics_are_shown_as_they_are() -> None:
    name = "persistent://public/default/my-topic"
    fault = faults(TOPIC="my-topic", DEAD_LETTER="Enabled", DEAD_LETTER_TOPIC=name)

    assert f"PULSAR_CONSUMER_DEAD_LETTER_TOPIC {name} is" in fault


def test_pattern_takes_own_topics_that_it_does_not_match() -> None:
    settings = load(TOPIC="", TOPIC_PATTERN="persistent://a/b/orders-.*")

    assert settings.all_topics == ()
    assert settings.dead_letter_topic_name == "persistent://a/b/my-sub-fc311a2e-DLQ"
    assert settings.former_dead_letter_topic_name == "persistent://a/b/my-sub-DLQ"
    assert settings.former_retry_topic_name == ""
    retries = load(
        TOPIC="", TOPIC_PATTERN="persistent://a/b/orders-.*", RETRY_STRATEGY="RetryTopic"
    )
    assert retries.retry_topic_name == "persistent://a/b/my-sub-fc311a2e-RETRY"
    assert retries.former_retry_topic_name == "persistent://a/b/my-sub-RETRY"


def test_consumers_of_two_patterns_share_no_topic_by_default() -> None:
    orders, invoices = (
        load(TOPIC="", TOPIC_PATTERN=f"persistent://a/b/{name}-.*") for name in ("orders", "bills")
    )

    assert orders.retry_topic_name != invoices.retry_topic_name
    assert orders.dead_letter_topic_name != invoices.dead_letter_topic_name


def test_copies_of_a_non_persistent_topic_are_persistent() -> None:
    settings = load(TOPIC="non-persistent://a/b/t", DEAD_LETTER="Enabled")

    assert settings.retry_topic_name == "persistent://a/b/t-my-sub-RETRY"
    assert settings.dead_letter_topic_name == "persistent://a/b/t-my-sub-DLQ"
    assert settings.attempts_topic_name == ""


def test_oauth_needs_its_file_alone() -> None:
    assert load(AUTH_TYPE="OAuth2", OAUTH2_CREDENTIALS_FILE="/c").auth_type is AuthType.OAUTH2


def test_collector_is_found_by_its_standard_name() -> None:
    environ = {f"PULSAR_CONSUMER_{name}": value for name, value in LEAST.items()}
    settings = load_settings({**environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"})

    assert settings.otlp_endpoint == "http://c:4318"


def test_misspelled_variable_is_found_and_those_of_services_are_not() -> None:
    environ = {
        "PULSAR_CONSUMER_TOPIK": "x",
        "PULSAR_CONSUMER_TOPIC": "x",
        "PULSAR_CONSUMER_PORT_8080_TCP_ADDR": "10.0.0.1",
        "PULSAR_CONSUMER_SERVICE_HOST": "10.0.0.1",
        "PULSAR_CONSUMER_METRICS_SERVICE_PORT": "1",
        "HOME": "/",
    }

    assert find_unknown(environ) == ["PULSAR_CONSUMER_TOPIK"]

"""Manifests of the pulsarconsumer operator, pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import Manifest
from operators.pulsarconsumer.api.scaling import Autoscaling
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.naming import Topic, default_admin_address, qualify_address
from operators.pulsarconsumer.resources.deployment import build_deployment
from operators.pulsarconsumer.resources.environment import render_variables
from operators.pulsarconsumer.resources.scalers import (
    build_scaled_object,
    build_trigger_authentication,
)
from operators.pulsarconsumer.samples import UID, parse_consumer

OWNER: Manifest = {"kind": "PulsarConsumer", "name": "orders", "uid": UID, "controller": True}
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.yaml"))


def build(replicas: int = 2, image: str = "app:1", **spec: Any) -> Manifest:
    return build_deployment(parse_consumer(**spec), replicas=replicas, image=image, owner=OWNER)


def pod(**spec: Any) -> Manifest:
    return dict(build(**spec)["spec"]["template"]["spec"])


def container(**spec: Any) -> Manifest:
    return dict(pod(**spec)["containers"][0])


def variables(**spec: Any) -> dict[str, str]:
    return render_variables(parse_consumer(**spec))


def test_liveness_is_probed_only_with_a_limit_and_no_sooner() -> None:
    unlimited = pod()["containers"][0]
    limited = pod(consumption={"handlerTimeoutSeconds": 600})["containers"][0]

    assert "livenessProbe" not in unlimited
    probe = limited["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > 600
    assert probe["timeoutSeconds"] == 5


def test_kept_fields_become_variables_and_defaults_do_not() -> None:
    assert variables() == {
        "SERVER": "pulsar://pulsar:6650",
        "TOPIC": "my-topic",
        "SUBSCRIPTION_NAME": "my-subscription",
        "JOURNAL_FOLDER": "/tmp/journal",
    }
    names = [entry["name"] for entry in container()["env"]]
    assert names[0] == "PULSAR_CONSUMER_NAME"
    assert "valueFrom" in container()["env"][0]


def test_number_of_replicas_is_no_part_of_the_template() -> None:
    assert build(1)["spec"]["template"] == build(9)["spec"]["template"]


def test_pod_is_restricted() -> None:
    spec, main = pod(), container()

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    assert main["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert main["securityContext"]["readOnlyRootFilesystem"] is True


def test_platform_can_assign_users_and_groups() -> None:
    built = build_deployment(
        parse_consumer(), replicas=1, image="app:1", owner=OWNER, user_ids=False
    )
    chosen = parse_consumer(template={"spec": {"securityContext": {"runAsUser": 1000}}})
    laid_over = build_deployment(chosen, replicas=1, image="app:1", owner=OWNER, user_ids=False)

    context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert built["spec"]["template"]["spec"]["securityContext"] == context
    assert laid_over["spec"]["template"]["spec"]["securityContext"] == {
        **context,
        "runAsUser": 1000,
    }


def test_secrets_are_files_and_never_variables() -> None:
    login = {"type": "Token", "token": {"secretKeyRef": {"name": "login", "key": "jwt"}}}
    spec = {"authentication": login, "tls": {"trustedCASecretRef": {"name": "ca", "key": "pem"}}}

    held = {volume["name"]: volume for volume in pod(**spec)["volumes"]}

    assert held["auth"]["secret"]["items"] == [{"key": "jwt", "path": "token"}]
    assert variables(**spec)["TOKEN_FILE"] == "/etc/pulsar/auth/token"
    assert variables(**spec)["TLS_TRUSTED_CA_FILE"] == "/etc/pulsar/tls/ca.crt"
    assert not any("secretKeyRef" in str(entry) for entry in container(**spec)["env"])
    assert all(m["readOnly"] for m in container(**spec)["volumeMounts"] if m["name"] != "tmp")


def test_token_of_the_service_account_is_projected_for_its_audience() -> None:
    token = {"audience": "pulsar", "expirationSeconds": 900}
    login = {"type": "ServiceAccountToken", "serviceAccountToken": token}
    spec = {"authentication": login, "template": {"spec": {"serviceAccountName": "shop"}}}

    held = {volume["name"]: volume for volume in pod(**spec)["volumes"]}

    (source,) = held["auth"]["projected"]["sources"]
    assert source == {"serviceAccountToken": {**token, "path": "token"}}
    assert variables(**spec)["AUTH_TYPE"] == "Token"
    assert variables(**spec)["TOKEN_FILE"] == "/etc/pulsar/auth/token"
    assert pod(**spec)["serviceAccountName"] == "shop"
    # The token for the API server itself stays out of the pod.
    assert pod(**spec)["automountServiceAccountToken"] is False


def test_credentials_of_the_operator_do_not_reach_the_pods() -> None:
    login = {"type": "Token", "token": {"secretKeyRef": {"name": "operator", "key": "jwt"}}}

    assert build(adminAuthentication=login) == build()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"topic": None, "topics": ["a", "b"]}, {"TOPICS": "a,b"}),
        ({"subscription": {"type": "KeyShared", "keyOrder": "Relaxed"}}, {
            "SUBSCRIPTION_TYPE": "KeyShared",
            "KEY_SHARED_ALLOW_OUT_OF_ORDER": "true",
        }),
        ({"tls": {"hostnameVerification": "Disabled"}}, {"TLS_VERIFY_HOSTNAME": "false"}),
        ({"consumption": {"batch": {"maxMessages": 7}}}, {"BATCH_MAX_MESSAGES": "7"}),
        ({"retry": {"strategy": "RetryTopic"}}, {"RETRY_STRATEGY": "RetryTopic"}),
        ({"retry": {"multiplier": 3}}, {"RETRY_MULTIPLIER": "3"}),
        ({"retry": {"multiplier": "1.5"}}, {"RETRY_MULTIPLIER": "1.5"}),
        ({"deadLetter": {"topic": "d"}}, {"DEAD_LETTER": "Enabled", "DEAD_LETTER_TOPIC": "d"}),
        ({"messageLog": {"samplePercent": 5}}, {"LOG_SAMPLE_RATIO": "0.05"}),
        ({"messageLog": {"samplePercent": 100}}, {"LOG_SAMPLE_RATIO": "1"}),
        ({"messageLog": {"redactProperties": ["a", "b"]}}, {"LOG_REDACT_PROPERTIES": "a,b"}),
        ({"handler": "shop.orders:handle"}, {"HANDLER": "shop.orders:handle"}),
        ({"drain": {"timeoutSeconds": 5}}, {"DRAIN_TIMEOUT_SECONDS": "5"}),
    ],
)  # fmt: skip
def test_fields_reach_the_consumer(spec: dict[str, Any], expected: dict[str, str]) -> None:
    assert expected.items() <= variables(**spec).items()


def test_strategy_changes_only_on_request() -> None:
    """Consumers need no permission to produce to other topics by default."""
    assert variables(retry={}) == variables()


def test_pod_has_time_to_drain() -> None:
    assert pod(drain={"timeoutSeconds": 100})["terminationGracePeriodSeconds"] == 120


def test_exclusive_consumer_goes_before_the_next_comes() -> None:
    shared = build()
    alone = build_deployment(
        parse_consumer(replicas=1, subscription={"type": "Exclusive"}),
        replicas=1,
        image="app:1",
        owner=OWNER,
    )

    assert shared["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == "25%"
    assert alone["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_template_is_laid_over_and_cannot_take_the_contract_away() -> None:
    overlay = {
        "metadata": {"labels": {"team": "a", "app.kubernetes.io/instance": "other"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "securityContext": {"runAsUser": 1000},
            "volumes": [{"name": "tmp", "hostPath": {"path": "/"}}, {"name": "own"}],
            "containers": [
                {
                    "name": "consumer",
                    "resources": {"limits": {"memory": "1Gi"}},
                    "env": [
                        {"name": "PULSAR_CONSUMER_TOPIC", "value": "other"},
                        {"name": "OWN", "value": "x"},
                    ],
                },
                {"name": "sidecar", "image": "b"},
            ],
        },
    }

    deployment = build(template=overlay)
    spec = deployment["spec"]["template"]["spec"]
    main, sidecar = spec["containers"]
    env = {entry["name"]: entry.get("value") for entry in main["env"]}

    assert deployment["spec"]["template"]["metadata"]["labels"] == {
        "team": "a",
        "app.kubernetes.io/managed-by": "pulsarconsumer",
        "app.kubernetes.io/instance": "orders",
    }
    assert (env["PULSAR_CONSUMER_TOPIC"], env["OWN"]) == ("my-topic", "x")
    assert main["resources"]["requests"]["cpu"] == "50m"
    assert main["resources"]["limits"] == {"memory": "1Gi"}
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 1000
    assert [volume["name"] for volume in spec["volumes"]] == ["tmp", "own"]
    assert "emptyDir" in spec["volumes"][0]
    assert sidecar == {"name": "sidecar", "image": "b"}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)
_NAMES = st.sampled_from(["containers", "volumes", "securityContext", "env", "name", "consumer"])


@given(overlay=st.dictionaries(_NAMES, _JSON, max_size=4))
def test_overlay_of_any_shape_never_fails(overlay: dict[str, Any]) -> None:
    built = build(template={"spec": overlay})

    assert built["spec"]["template"]["spec"]["containers"][0]["name"] == "consumer"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_can_be_rendered(path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        manifest["metadata"] |= {"namespace": "default", "uid": UID}
        consumer = PulsarConsumer.parse(manifest)

        assert build_deployment(consumer, replicas=1, image="app:1", owner=OWNER)


def test_schema_is_mounted_under_the_name_that_the_app_reads() -> None:
    reference = {"name": "schemas", "key": "order.avsc"}
    spec = {"schema": {"type": "Avro", "configMapKeyRef": reference}}
    held = {volume["name"]: volume for volume in pod(**spec)["volumes"]}
    assert held["schema"]["configMap"] == {
        "name": "schemas",
        "items": [{"key": "order.avsc", "path": "schema"}],
    }
    assert variables(**spec)["SCHEMA_FILE"] == "/etc/pulsar/schema/schema"


# KEDA.


def test_keda_gets_a_trigger_a_topic_and_the_secrets() -> None:
    login = {"type": "Basic", "basic": {"secretName": "login"}}
    consumer = parse_consumer(topic=None, topics=["a", "persistent://t/n/b"], authentication=login)
    behavior = {"scaleUp": {"maxStep": 2}, "scaleDown": {"stabilizationSeconds": 60}}
    scaling = Autoscaling.model_validate({"maxReplicas": 4, "behavior": behavior})

    built = build_scaled_object(
        consumer, scaling, OWNER, admin_address="http://p:8080", partitions={"a": 3}
    )
    access = build_trigger_authentication(consumer, OWNER)

    first, second = (trigger["metadata"] for trigger in built["spec"]["triggers"])
    assert built["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 2, "periodSeconds": 15}],
        },
        "scaleDown": {"stabilizationWindowSeconds": 60},
    }
    assert (first["isPartitionedTopic"], second["isPartitionedTopic"]) == ("true", "false")
    assert second["topic"] == "persistent://t/n/b"
    assert first["authModes"] == "basic"
    assert access is not None
    assert {entry["parameter"] for entry in access["spec"]["secretTargetRef"]} == {
        "username",
        "password",
    }


# Names.


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("pulsar://pulsar:6650", "http://pulsar.team.svc:8080"),
        ("pulsar+ssl://pulsar:6651", "https://pulsar.team.svc:8443"),
        ("pulsar://broker.pulsar.svc:6650,other:6650", "http://broker.pulsar.svc:8080"),
        ("pulsar://10.1.2.3", "http://10.1.2.3:8080"),
        ("pulsar://[fd00::1]:6650", "http://[fd00::1]:8080"),
        ("https://pulsar.example.com:443/", "https://pulsar.example.com:443"),
        ("pulsar://localhost:6650", "http://localhost:8080"),
    ],
)
def test_admin_address_follows_from_the_server(server: str, expected: str) -> None:
    assert default_admin_address(server, "team") == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://pulsar:8080", "http://pulsar.team.svc:8080"),
        ("https://pulsar/admin", "https://pulsar.team.svc/admin"),
        ("http://pulsar.other:8080", "http://pulsar.other:8080"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://[fd00::1]:8080/", "http://[fd00::1]:8080/"),
    ],
)
def test_service_of_the_namespace_is_named_in_full(address: str, expected: str) -> None:
    assert qualify_address(address, "team") == expected


def test_topic_path_is_encoded() -> None:
    assert str(Topic.parse("orders")) == "persistent://public/default/orders"
    assert str(Topic.parse("shop/eu/orders")) == "persistent://shop/eu/orders"
    assert Topic.parse("persistent://a/b/c?d/e").path == "/persistent/a/b/c%3Fd%2Fe"

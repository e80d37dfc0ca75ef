"""What is added to a new pod so that its JVMs begin with the exporter."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.client import Client
from libs.common.kinds import POD, Kind, Manifest, build_object
from libs.common.testing.fakeapi.patches import apply_json_patch
from operators.jmxexporter.api.v1alpha1 import PrometheusJmxExporter
from operators.jmxexporter.naming import STARTED
from operators.jmxexporter.resources import Image
from operators.jmxexporter.samples import build_exporter
from operators.jmxexporter.startup import OPTIONS, VOLUME, build_startup_patch

IMAGE = Image("slipway/jmxexporter:dev")


def build_new_pod(*containers: Manifest, **spec: Any) -> Manifest:
    """Build a pod as the API server shows it to webhooks: it may have no name yet."""
    held = [{"name": "app", "image": "shop", **each} for each in containers or ({},)]
    return {"metadata": {"generateName": "shop-"}, "spec": {"containers": held, **spec}}


def start(pod: Manifest, **spec: Any) -> Manifest:
    """Return the pod as it is created."""
    exporter = PrometheusJmxExporter.parse(build_exporter(**{"startup": "NewPods", **spec}))
    patch = build_startup_patch(exporter, pod, IMAGE)
    changed: Manifest = apply_json_patch(copy.deepcopy(pod), patch)
    return changed


def options(pod: Manifest, index: int = 0) -> list[str]:
    held = pod["spec"]["containers"][index].get("env") or []
    return [each.get("value", "") for each in held if each["name"] == OPTIONS]


def test_jvms_of_a_new_pod_begin_with_the_exporter() -> None:
    pod = start(build_new_pod())

    assert options(pod) == [
        "-javaagent:/slipway-jmx/agent.jar=/slipway-jmx/start.properties",
    ]
    (init,) = pod["spec"]["initContainers"]
    assert init["image"] == IMAGE.name
    assert init["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert json.loads(pod["metadata"]["annotations"][STARTED])["containers"] == ["app"]


def test_missing_configuration_holds_up_no_pod() -> None:
    volumes = start(build_new_pod())["spec"]["volumes"]

    (config_map,) = [each["configMap"] for each in volumes if "configMap" in each]
    assert config_map["optional"] is True


def test_options_of_the_application_stay() -> None:
    pod = start(build_new_pod({"env": [{"name": OPTIONS, "value": "-Xmx1g"}]}))

    (value,) = options(pod)
    assert value.startswith("-Xmx1g -javaagent:")


@pytest.mark.parametrize(
    "container",
    [
        {"env": [{"name": OPTIONS, "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]},
        {"envFrom": [{"configMapRef": {"name": "a"}}]},
        {"env": [{"name": OPTIONS, "value": "a"}, {"name": OPTIONS, "value": "b"}]},
        {"volumeMounts": [{"name": "x", "mountPath": "/slipway-jmx"}]},
        {"name": "istio-proxy"},
    ],
    ids=["from elsewhere", "perhaps from elsewhere", "twice", "place taken", "left out"],
)
def test_container_in_doubt_is_not_changed(container: Manifest) -> None:
    pod = build_new_pod(container)
    both = start(build_new_pod(container, {"name": "other"}))

    assert start(pod) == pod
    assert both["spec"]["containers"][0] == build_new_pod(container)["spec"]["containers"][0]
    assert options(both, 1)


@pytest.mark.parametrize(
    "pod",
    [
        build_new_pod(os={"name": "windows"}),
        build_new_pod(volumes=[{"name": VOLUME, "emptyDir": {}}]),
        build_new_pod(initContainers=[{"name": VOLUME}]),
        {**build_new_pod(), "metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
    ],
    ids=["windows", "volume taken", "name taken", "mirror pod"],
)
def test_pod_that_cannot_take_it_is_left_as_it_is(pod: Manifest) -> None:
    assert start(pod) == pod


@pytest.mark.parametrize("spec", [{"startup": "Never"}, {"mode": "Paused"}, {"mode": "DryRun"}])
def test_nothing_is_changed_unless_it_is_asked_for(spec: dict[str, str]) -> None:
    assert start(build_new_pod(), **spec) == build_new_pod()


def test_jars_come_before_any_other_init_container() -> None:
    pod = start(build_new_pod(initContainers=[{"name": "sidecar", "restartPolicy": "Always"}]))

    assert [each["name"] for each in pod["spec"]["initContainers"]] == [VOLUME, "sidecar"]


NAMES = st.sampled_from(["A", OPTIONS, "PATH"])


@pytest.mark.parametrize(
    ("container", "pod", "spec"),
    [
        ({}, {"hostNetwork": True}, {}),
        (
            {"env": [{"name": "OPTS", "value": "-javaagent:/x/jmx_prometheus_javaagent.jar=1:c"}]},
            {},
            {},
        ),
        ({"args": ["-javaagent:/jmx_prometheus.jar=9404:c", "-jar", "a.jar"]}, {}, {}),
        ({"command": ["java", "-Djava.security.manager", "Shop"]}, {}, {}),
        ({"resources": {"limits": {"memory": "96Mi"}}}, {}, {}),
        ({"resources": {"limits": {"memory": "1Gi"}}}, {}, {"minFreeMemory": "2Gi"}),
    ],
    ids=[
        "host network",
        "exporter in env",
        "exporter in args",
        "security manager",
        "memory",
        "own",
    ],
)
def test_webhook_leaves_out_what_injectors_refuse(
    container: Manifest, pod: Manifest, spec: dict[str, Any]
) -> None:
    new = build_new_pod(container, **pod)

    assert start(new, **spec) == new


@pytest.mark.parametrize(
    ("container", "pod", "spec"),
    [
        ({}, {"hostNetwork": True}, {"hostNetwork": "Allow"}),
        ({"args": ["-Djava.security.manager=allow"]}, {}, {}),
        ({"env": [{"name": "OPTS", "value": "-javaagent:/otel.jar"}]}, {}, {}),
        ({"resources": {"limits": {"memory": "512Mi"}}}, {}, {}),
    ],
)
def test_webhook_starts_what_injectors_accept(
    container: Manifest, pod: Manifest, spec: dict[str, Any]
) -> None:
    assert len(options(start(build_new_pod(container, **pod), **spec))) == 1


ENV = st.lists(
    st.one_of(
        st.fixed_dictionaries({"name": NAMES, "value": st.text(max_size=5)}),
        st.fixed_dictionaries({"name": NAMES, "valueFrom": st.just({"fieldRef": {}})}),
    ),
    max_size=3,
)
MOUNTS = st.lists(
    st.fixed_dictionaries({"name": st.just("v"), "mountPath": st.sampled_from(["/a", "/tmp"])}),
    max_size=2,
)
CONTAINER = st.fixed_dictionaries(
    {}, optional={"env": ENV, "volumeMounts": MOUNTS, "envFrom": st.just([{"prefix": "X"}])}
)


@given(st.lists(CONTAINER, min_size=1, max_size=3), st.booleans())
def test_what_a_pod_says_is_never_taken_away(containers: list[Manifest], annotated: bool) -> None:
    named = [{**each, "name": f"c{n}"} for n, each in enumerate(containers)]
    pod = build_new_pod(*named)
    if annotated:
        pod["metadata"]["annotations"] = {"mine": "stays"}

    changed = start(pod)

    for before, after in zip(pod["spec"]["containers"], changed["spec"]["containers"], strict=True):
        assert after.get("envFrom") == before.get("envFrom")
        assert (after.get("volumeMounts") or [])[: len(before.get("volumeMounts") or [])] == (
            before.get("volumeMounts") or []
        )
        held = {each["name"]: each for each in after.get("env") or []}
        for variable in before.get("env") or []:
            if variable["name"] != OPTIONS:
                assert variable in after["env"]
            elif "value" in variable and len(before["env"]) == 1:
                assert held[OPTIONS]["value"].startswith(variable["value"])
    assert (changed["metadata"].get("annotations") or {}).get("mine") == (
        "stays" if annotated else None
    )
    assert start(changed) == changed, "a second webhook call changes nothing"


LIMIT_RANGE = Kind("", "v1", "LimitRange", "limitranges")
SMALL = {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
FIXED = {"requests": SMALL["limits"], "limits": SMALL["limits"]}


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("resources", "quality"), [({}, "BestEffort"), (SMALL, "Burstable"), (FIXED, "Guaranteed")]
)
async def test_admission_sees_the_resources_of_the_pod_as_before(
    kube_client: Client, kube_namespace: str, resources: Manifest, quality: str
) -> None:
    """A LimitRange would refuse each new pod, and a guaranteed pod would lose its processors."""
    if resources:
        limit = {
            "type": "Container",
            "min": {"memory": "128Mi"},
            "maxLimitRequestRatio": {"cpu": 4},
        }
        await kube_client.create(
            LIMIT_RANGE, build_object(LIMIT_RANGE, "x", kube_namespace, spec={"limits": [limit]})
        )
    pod = start(build_new_pod({"resources": resources}))

    manifest = {"apiVersion": "v1", "kind": "Pod", **pod}
    manifest["metadata"] = {**pod["metadata"], "namespace": kube_namespace}
    made = await kube_client.create(POD, manifest, dry_run=True)

    assert made["status"]["qosClass"] == quality


@pytest.mark.parametrize(
    ("context", "pod_context", "user"),
    [({}, {}, 65532), ({"runAsUser": 1000}, {"runAsUser": 0}, 1000), ({}, {"runAsUser": 7}, 7)],
)
def test_init_container_runs_as_the_user_that_a_policy_permits(
    context: Manifest, pod_context: Manifest, user: int
) -> None:
    """Each namespace of OpenShift has a range of users of its own."""
    pod = start(build_new_pod({"securityContext": context}, securityContext=pod_context))

    assert pod["spec"]["initContainers"][0]["securityContext"]["runAsUser"] == user

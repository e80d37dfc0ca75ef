"""The archive of `kubectl slipway report` holds nothing that users wrote as a secret."""

from __future__ import annotations

import zipfile
from pathlib import Path

from kubectl_slipway.conftest import Lab, lab  # noqa: F401 a fixture
from kubectl_slipway.states.conftest import PODSET, add_child, not_ready, podset
from lab.sweep.canaries import build_canary, find_leaks
from libs.common.kinds import POD, build_object
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER


async def test_report_hides_what_users_write_into_templates(
    lab: Lab, tmp_path: Path  # noqa: F811 the fixture
) -> None:
    purposes = ("env", "args", "command", "init", "token", "log", "header", "hook", "operator")
    canaries = {purpose: build_canary("report", purpose) for purpose in purposes}
    canaries["url"] = "https://admin:s3cret-of-a-url@pulsar:6650"
    container = {
        "name": "main",
        "image": "busybox",
        "env": [{"name": "GH", "value": canaries["env"]}],
        "args": ["--verbose", canaries["args"]],
        "command": ["curl", "-u", f"user:{canaries['command']}"],
        "livenessProbe": {
            "httpGet": {"httpHeaders": [{"name": "X-Trace", "value": canaries["header"]}]}
        },
        "lifecycle": {"preStop": {"exec": {"command": ["stop", canaries["hook"]]}}},
    }
    init = {**container, "name": "init", "env": [{"name": "A", "value": canaries["init"]}]}
    message = f"cannot log in with password={canaries['log']} at {canaries['url']}"
    template = {"spec": {"containers": [container], "initContainers": [init]}}
    annotations = {"example.com/api-key": canaries["token"]}
    web = podset(metadata={"annotations": annotations}, status=not_ready("FailedCreate", message))
    orders = build_object(
        PULSAR_CONSUMER,
        "orders",
        "default",
        spec={
            "serverAddress": "pulsar://p:6650",
            "topic": "t",
            "subscriptionName": "s",
            "replicas": 1,
            "template": template,
        },
    )
    # Names of pod templates and of ephemeral containers differ; the fields in them do not.
    debug = {
        "containers": [container],
        "initContainers": [init],
        "ephemeralContainers": [container],
    }
    lab.put(web | {"spec": {"replicas": 1, "template": template}}, orders)
    add_child(
        lab, lab.api.get(PODSET, ("default", "web")), build_object(POD, "p", "default", spec=debug)
    )
    lab.install("podset", env=[{"name": "EXTRA", "value": canaries["operator"]}])
    path = tmp_path / "report.zip"
    await lab.run("report", "--file", str(path))

    with zipfile.ZipFile(path) as archive:
        content = "".join(archive.read(name).decode() for name in archive.namelist())
        names = set(archive.namelist())
    assert {"objects/default/pulsarconsumers-orders.json", "children/default/pods-p.json"} <= names
    assert find_leaks(content, canaries.values(), "report") == []
    assert '"GH"' in content and "busybox" in content, "names and images stay"

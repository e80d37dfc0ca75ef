"""The commands as a user runs them, on the fake API."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubectl_slipway.api import Api
from kubectl_slipway.cli import main
from kubectl_slipway.commands.report import render
from kubectl_slipway.conftest import SYSTEM, Lab, ago
from kubectl_slipway.diagnosis.workloads import find_pod_problem
from kubectl_slipway.discovery import Catalog
from kubectl_slipway.errors import PluginError
from kubectl_slipway.output import shorten
from kubectl_slipway.states.conftest import IMAGE, PODSET, add_child, claim, not_ready, podset, pool
from libs.common.kinds import CRD, DEPLOYMENT, POD, Key, Kind, Manifest, build_object
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER

CERTIFICATE = Kind("cert-manager.io", "v1", "Certificate", "certificates")


def consumer(name: str = "orders", **spec: Any) -> Manifest:
    needed = {
        "serverAddress": "pulsar://p:6650",
        "topic": "t",
        "subscriptionName": "s",
        "replicas": 1,
    }
    return build_object(PULSAR_CONSUMER, name, "default", spec={**needed, **spec})


async def test_status_shows_operators_and_objects_that_nobody_watches(lab: Lab) -> None:
    lab.install("podset", watches="default")
    lab.put(podset(), podset("b", "kube-system"), podset("c", "kube-system"))
    result = await lab.run("status")
    lines = result.out.splitlines()
    header = "OPERATOR NAMESPACE RELEASE VERSION LEADER REPLICAS WATCHES OBJECTS NOT READY"
    assert lines[0].split() == header.split()
    row = "podset slipway-system podset 0.1.0 podset-5d8f-abcde 1/1 default 1 1"
    assert lines[1].split() == row.split()
    assert lines[2] == "Warning: no podset operator watches 2 PodSets in namespace kube-system."
    assert result.code == 1


async def test_status_knows_which_namespaces_are_excluded(lab: Lab) -> None:
    env = [{"name": "PODSET_WATCH_EXCLUDED_NAMESPACES", "value": "kube-system,team-x"}]
    lab.install("podset", env=env)
    lab.put(podset(), podset("b", "kube-system"))
    lines = (await lab.run("status")).out.splitlines()
    assert "* except kube-system,team-x" in lines[1]
    assert lines[2] == "Warning: no podset operator watches 1 PodSet in namespace kube-system."


async def test_problems_lists_what_is_not_ready_in_the_namespace(lab: Lab) -> None:
    ready = not_ready("AllAvailable", Ready="True")
    lab.put(podset("good", status=ready), podset("bad", status=not_ready("ScalingUp", "0 of 1")))
    lab.put(podset("far", "kube-system", status=not_ready("BackOff", "pods end")))
    here = await lab.run("problems", "-o", "json")
    everywhere = await lab.run("problems", "-A", "-o", "yaml")
    assert [(each["object"], each["reason"]) for each in here.data] == [("PodSet/bad", "ScalingUp")]
    assert "object: PodSet/far" in everywhere.out
    assert here.code == everywhere.code == 1


async def test_nothing_is_wrong_with_a_ready_object(lab: Lab) -> None:
    lab.install("podset")
    lab.put(podset(status=not_ready("AllAvailable", Ready="True")))
    why, problems = await lab.run("why", "podset", "web"), await lab.run("problems")
    assert why.out.splitlines()[-1] == "Nothing is wrong."
    assert problems.out == "All 1 objects of the category slipway in namespace default are ready.\n"
    assert why.code == problems.code == 0


async def test_problems_finds_kinds_of_other_projects_by_their_category(lab: Lab) -> None:
    """A project that uses the library has kinds of its own, whose CRDs may join the category."""
    site = Kind("example.org", "v1", "Site", "sites")
    lab.api.register(site)
    manifest = build_object(site, "a", "default", status=not_ready("Down", "no answer"))
    lab.put(manifest)
    outside = await lab.run("problems")
    lab.api.patch(
        CRD, Key("", "sites.example.org"), {"spec": {"names": {"categories": ["slipway"]}}}
    )
    inside = await lab.run("problems", "-o", "json")
    assert outside.out == (
        "Nothing was checked: no kind in the category slipway has objects in namespace default.\n"
    )
    assert [each["object"] for each in inside.data] == ["Site/a"]


async def test_tree_shows_children_and_missing_references(lab: Lab) -> None:
    lab.install("ipam", "podset")
    parent = lab.api.create(podset(status=not_ready("PodsNotReady", "0 of 1")))
    spec = {"containers": [{"name": "app", "image": "example.com/app:1"}]}
    add_child(lab, parent, build_object(POD, "web-0", "default", spec=spec))
    lab.put(claim())
    owned, referred = await lab.run("tree", "podset/web"), await lab.run("tree", "ipc/web")
    assert [line.split()[0] for line in owned.out.splitlines()] == [
        "NAME",
        "PodSet/web",
        "└─Pod/web-0",
    ]
    assert referred.out.splitlines()[2].split()[:3] == ["└→IPPool/public", "-", "Missing"]


async def test_vm_follows_an_operation_to_its_end(lab: Lab) -> None:
    lab.put(build_object(INSTANCE, "web", "default", spec={"size": "small", "image": IMAGE}))
    running = asyncio.create_task(lab.run("vm", "resize", "web", "--size", "large", "--wait"))
    async with asyncio.timeout(60):
        while not lab.api.objects(OPERATION):
            await asyncio.sleep(0.01)
    operation = lab.api.objects(OPERATION)[0]
    key = Key("default", operation["metadata"]["name"])
    step = {"name": "Accept", "state": "Done", "startedAt": ago(9), "finishedAt": ago(4)}
    status = {"phase": "Failed", "reason": "SizeNotFound", "message": "there is no large"}
    lab.api.patch_status(OPERATION, key, {**status, "steps": [step], "duration": "9s"})
    result = await running
    assert operation["spec"]["type"] == "Resize"
    assert operation["spec"]["resize"]["size"] == "large"
    assert operation["spec"]["targetRef"]["name"] == "web"
    assert "✓ Accept 5s" in result.out
    assert "Resize of Instance web failed after 9s: SizeNotFound: there is no large" in result.out
    assert result.code == 1


@pytest.mark.parametrize(
    ("argv", "type", "details"),
    [
        (["start"], "Start", {}),
        (["stop"], "Stop", {}),
        (["reboot"], "Reboot", {}),
        (["soft-reboot"], "SoftReboot", {}),
        (["rebuild"], "Rebuild", {}),
        (
            ["rescue", "--image", "docker://example.com/rescue", "--duration", "600"],
            "Rescue",
            {"rescue": {"image": {"registry": "docker://example.com/rescue"}}},
        ),
        (
            ["resize", "--instancetype", "virtualmachineinstancetype/mine"],
            "Resize",
            {"resize": {"instancetype": {"kind": "VirtualMachineInstancetype", "name": "mine"}}},
        ),
        (
            ["resize", "--instancetype", "u1.large"],
            "Resize",
            {
                "resize": {
                    "instancetype": {
                        "kind": "VirtualMachineClusterInstancetype",
                        "name": "u1.large",
                    }
                }
            },
        ),
        (["migrate", "--node-selector", "zone=b"], "Migrate", {"migrate": None}),
        (["snapshot", "--snapshot-name", "before"], "Snapshot", {"snapshot": {"name": "before"}}),
        (["restore", "--snapshot", "before"], "Restore", {"restore": None}),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
async def test_vm_creates_operations_that_the_api_takes(
    lab: Lab, argv: list[str], type: str, details: dict[str, Any]
) -> None:
    lab.put(build_object(INSTANCE, "web", "default", spec={"size": "small", "image": IMAGE}))
    result = await lab.run("vm", argv[0], "web", *argv[1:])
    spec = lab.api.objects(OPERATION)[0]["spec"]
    assert (result.code, spec["type"]) == (0, type)
    for field, wanted in details.items():
        assert field in spec
        for key, value in (wanted or {}).items():
            assert spec[field][key] == value


async def test_pause_and_resume_set_and_remove_the_annotation(lab: Lab) -> None:
    lab.put(podset())
    await lab.run("pause", "podset/web")
    paused = lab.api.get(PODSET, ("default", "web"))["metadata"]["annotations"]
    await lab.run("resume", "podset/web")
    resumed = lab.api.get(PODSET, ("default", "web"))["metadata"].get("annotations") or {}
    assert (paused["slipway.dev/paused"], "slipway.dev/paused" in resumed) == ("true", False)


async def test_force_finalize_refuses_objects_that_stay_and_asks(lab: Lab) -> None:
    lab.put(podset(metadata={"finalizers": ["batch.tutorial.kubebuilder.io/finalizer"]}))
    early = await lab.run("force-finalize", "podset/web", "--yes")
    lab.api.delete(PODSET, ("default", "web"))
    forced = await lab.run("force-finalize", "podset/web", "--yes")
    annotations = lab.api.get(PODSET, ("default", "web"))["metadata"]["annotations"]
    assert (early.code, forced.code) == (2, 0)
    assert "is not being deleted" in early.err
    assert annotations["slipway.dev/force-finalize"] == "true"


async def test_ip_shows_pools_and_who_has_an_address(lab: Lab) -> None:
    capacity = {"total": "1", "free": "0", "allocated": 1, "waiting": 2}
    lab.put({**pool(), "status": {"capacity": capacity}})
    lab.put({**claim(), "status": {"address": "203.0.113.7"}})
    pools, who = await lab.run("ip", "pools"), await lab.run("ip", "who", "203.0.113.7")
    nobody, wrong = await lab.run("ip", "who", "2001:db8::1"), await lab.run("ip", "who", "web")
    row = dict(zip(*(line.split() for line in pools.out.splitlines()), strict=False))
    assert (row["POOL"], row["FREE"], row["WAITING"], pools.code) == ("public", "0", "2", 1)
    assert who.out.splitlines()[1].split() == ["203.0.113.7", "default", "web", "public", "-", "-"]
    assert (nobody.code, wrong.code) == (3, 2)


async def test_pulsar_shows_the_backlog_and_moves_the_subscription(lab: Lab) -> None:
    status = {"backlog": {"entries": 42, "rateOut": 7}, "ready": "2/2"}
    lab.put({**consumer(), "status": status})
    backlog = await lab.run("pulsar", "backlog", "-o", "json")
    await lab.run("pulsar", "pause", "orders")
    await lab.run("pulsar", "seek", "orders", "--to", "2026-11-20T08:00:00Z")
    first = lab.api.get(PULSAR_CONSUMER, ("default", "orders"))["spec"]
    await lab.run("pulsar", "seek", "orders", "--to", "earliest")
    second = lab.api.get(PULSAR_CONSUMER, ("default", "orders"))["spec"]["subscription"]["seek"]
    wrong = await lab.run("pulsar", "seek", "orders", "--to", "yesterday")
    assert (backlog.data[0]["entries"], backlog.data[0]["rateOut"]) == (42, 7)
    assert first["paused"] is True
    assert first["subscription"]["seek"]["time"] == "2026-11-20T08:00:00Z"
    assert (second["position"], "time" in second) == ("Earliest", False)
    assert second["id"] != first["subscription"]["seek"]["id"]
    assert wrong.code == 2


async def test_pulsar_redrive_runs_the_command_in_a_pod(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(f'#!/bin/sh\necho "$@" > {said}\nexit ${{CODE:-0}}\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{kubectl.parent}:/usr/bin:/bin")
    lab.put(consumer())
    without = await lab.run("pulsar", "redrive", "orders")
    lab.put(consumer("shop", deadLetter={}))
    stopped = await lab.run("pulsar", "redrive", "shop")
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}}
    selector = {"matchLabels": {"app": "shop"}}
    container = {"name": "app", "image": "example.com/app:1"}
    template = {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [container]}}
    deployment["metadata"] = {"name": "shop", "namespace": "default"}
    lab.put({**deployment, "spec": {"selector": selector, "template": template}})
    lab.api.patch_status(DEPLOYMENT, Key("default", "shop"), {"readyReplicas": 1})
    done = await lab.run("pulsar", "redrive", "shop", "--limit", "10", "--context", "east")
    limited = said.read_text()
    monkeypatch.setenv("CODE", "3")
    failed = await lab.run("pulsar", "redrive", "shop")

    assert (without.code, stopped.code, done.code, failed.code) == (1, 1, 0, 1)
    assert "has no dead-letter topic" in without.err
    assert "has no running pod" in stopped.err
    words = "exec deployment/shop --namespace default -- "
    command = "/app/bin/python -P -m operators.pulsarconsumer.app.redrive"
    assert done.err == ""
    assert limited == f"--context=east {words}{command} --limit 10\n"
    assert said.read_text() == f"{words}{command}\n"


async def test_logs_are_of_all_pods_or_about_one_object(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.install("podset")
    asked: list[str] = []

    def text(_: Api, path: str, query: dict[str, str]) -> list[str]:
        asked.append(f"{path}?{query['tailLines']}")
        about = '{"event": "Reconciled", "namespace": "shop", "name": "web"}'
        return [about, '{"event": "Reconciled", "namespace": "other", "name": "web"}', "plain"]

    monkeypatch.setattr(Api, "text", text)
    everything = await lab.run("logs", "podset", "--tail", "7")
    one = await lab.run("logs", "podset", "--object", "shop/web")
    unknown = await lab.run("logs", "volumes")

    pod = "/api/v1/namespaces/slipway-system/pods/podset-5d8f-abcde/log"
    assert asked == [f"{pod}?7", f"{pod}?500"]
    assert len(everything.out.splitlines()) == 3
    assert one.out.splitlines() == ['{"event": "Reconciled", "namespace": "shop", "name": "web"}']
    assert (unknown.code, everything.code) == (3, 0)
    assert "Installed operators: podset." in unknown.err


async def test_a_report_holds_no_secret(lab: Lab, tmp_path: Path) -> None:
    address = "pulsar://admin:hunter2@pulsar:6650"
    lab.install("pulsarconsumer", env=[{"name": "API_TOKEN", "value": "hunter2"}])
    lab.put({**consumer(), "status": {"server": address}})
    applied = {"kubectl.kubernetes.io/last-applied-configuration": '{"password":"hunter2"}'}
    lab.put(podset(metadata={"annotations": applied}))
    path = tmp_path / "report.zip"
    result = await lab.run("report", "--file", str(path))
    again = await lab.run("report", "--file", str(path))
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        content = "".join(archive.read(name).decode() for name in names)
    assert "objects/default/pulsarconsumers-orders.json" in names
    assert "hunter2" not in content
    assert "[redacted]@pulsar" in content
    assert (result.code, again.code) == (0, 2)


async def test_incomplete_result_is_no_success(lab: Lab, tmp_path: Path) -> None:
    lab.put(podset(status=not_ready("Running", Ready="True")), podset("b", "team"))
    complete = await lab.run("problems", "-A")
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}
    lab.api.allow([rule], namespace="default")
    refused = await lab.run("problems", "-A")
    as_json = await lab.run("problems", "-A", "-o", "json")
    status = await lab.run("status")
    report = await lab.run("report", "--file", str(tmp_path / "report.zip"))

    assert (complete.code, refused.code, as_json.code, as_json.data) == (1, 4, 4, [])
    assert "All 1 objects that you may read are ready." in refused.out
    assert "kinds could not be read completely" in refused.out
    assert "podsets.batch.tutorial.kubebuilder.io in all namespaces: only namespace default is" in (
        refused.err
    )
    assert (status.code, report.code) == (4, 4)
    assert "Operators cannot be read." in status.out
    with zipfile.ZipFile(tmp_path / "report.zip") as archive:
        assert "unreadable.json" in archive.namelist()


async def test_global_flags_stand_before_and_after_the_command(lab: Lab) -> None:
    lab.put(podset("here", "team-a", status=not_ready("BackOff", "pods end")))
    before = await lab.run("-n", "team-a", "problems", "-o", "json")
    after = await lab.run("problems", "-n", "team-a", "-o", "json")
    group = await lab.run("vm", "-n", "team-a", "start", "web")
    last = await lab.run("-n", "team-b", "problems", "-n", "team-a", "-o", "json")

    found = [[each["object"] for each in one.data] for one in (before, after, last)]
    assert found == [["PodSet/here"]] * 3
    assert "namespace team-a" in group.err


async def test_messages_are_complete_for_programs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "pods end: " + "one more, " * 30 + "the last"
    lab.put(podset(status=not_ready("BackOff", message)))
    piped = await lab.run("problems")
    monkeypatch.setattr("kubectl_slipway.output.sys.stdout.isatty", lambda: True)

    assert message in piped.out
    assert "…" not in piped.out
    assert shorten(message, 80).endswith("…")


async def test_problems_are_selected_by_label(lab: Lab) -> None:
    status = not_ready("BackOff", "pods end")
    lab.put(podset("a", status=status, metadata={"labels": {"team": "shop"}}))
    lab.put(podset("b", status=status))
    selected = await lab.run("problems", "-l", "team=shop", "-o", "json")

    assert [each["object"] for each in selected.data] == ["PodSet/a"]


async def test_watch_prints_what_changes_until_it_is_interrupted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.put(podset(status=not_ready("AllAvailable", Ready="True")))
    rounds = iter(("unchanged", "broken", "end"))

    def sleep(_: float) -> None:
        match next(rounds):
            case "broken":
                lab.put(podset("b", status=not_ready("BackOff", "pods end")))
            case "end":
                raise KeyboardInterrupt

    monkeypatch.setattr("kubectl_slipway.cli.time.sleep", sleep)
    result = await lab.run("problems", "--watch")

    assert result.out.count("All 1 objects") == 1
    assert "PodSet/b" in result.out
    assert result.code == 130


async def test_why_names_what_it_could_not_read(lab: Lab) -> None:
    lab.install("podset")
    lab.put(podset(status=not_ready("PodsNotReady", "0 of 1")))
    lab.api.allow(
        [{"apiGroups": ["batch.tutorial.kubebuilder.io"], "resources": ["*"], "verbs": ["*"]}]
    )
    result = await lab.run("why", "podset/web")

    assert "PodsNotReady" in result.out
    assert "You may not list" in result.err
    assert "pods" in result.err
    assert "Events in namespace default" in result.err


def test_a_kind_that_is_not_installed_names_its_chart() -> None:
    for word in ("podset", "podsets", "PodSets.batch.tutorial.kubebuilder.io"):
        with pytest.raises(PluginError) as caught:
            Catalog([]).find(word)
        assert "helm install podset" in caught.value.remedy
    with pytest.raises(PluginError) as caught:
        Catalog([]).find("nonsense")
    assert "no CRD is installed" in caught.value.remedy


async def test_a_report_holds_what_a_maintainer_asks_for(lab: Lab, tmp_path: Path) -> None:
    lab.install("podset")
    parent = lab.api.create(podset(status=not_ready("PodsNotReady", "0 of 1")))
    spec = {"containers": [{"name": "app", "image": "example.com/app:1", "args": ["hunter2"]}]}
    add_child(lab, parent, build_object(POD, "web-0", "default", spec=spec))
    lab.put(build_object(POD, "other", "default", spec=spec), podset("far", "team-b"))
    path = tmp_path / "report.zip"
    result = await lab.run("report", "-n", "default", "--file", str(path))
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        content = "".join(archive.read(name).decode() for name in names)

    assert result.code == 0
    assert "children/default/pods-web-0.json" in names
    assert "operators/slipway-system-podset.json" in names
    assert "crds.json" in names
    assert not [name for name in names if "other" in name or "far" in name]
    assert "hunter2" not in content


async def test_check_names_what_is_missing(lab: Lab) -> None:
    lab.install("podset")
    result = await lab.run("check", "-o", "json")
    results = {each["check"]: each["result"] for each in result.data}
    assert results["Kubernetes version"] == results["operator podset"] == "ok"
    assert (results["KubeVirt"], results["operator ipam"], result.code) == ("missing", "failed", 1)


async def test_check_names_why_cert_manager_issues_no_certificate(lab: Lab) -> None:
    variable = "JMXEXPORTER_WEBHOOK_CERTIFICATE_SECRET"
    lab.install("jmxexporter", env=[{"name": variable, "value": "hook-tls"}])
    check = "webhook certificate of jmxexporter in slipway-system"

    async def read_results() -> dict[str, tuple[str, str]]:
        result = await lab.run("check", "-o", "json")
        return {each["check"]: (each["result"], each["detail"]) for each in result.data}

    before = await read_results()
    assert before["cert-manager"][0] == "missing"
    assert before[check] == ("missing", "no Certificate writes Secret hook-tls; someone else must")
    lab.api.register(CERTIFICATE)
    conditions = [{"type": "Ready", "status": "False", "message": "Issuing certificate"}]
    issuer = {"type": "Issuing", "status": "True", "message": "Issuer company does not exist"}
    certificate = build_object(CERTIFICATE, "hook", SYSTEM, spec={"secretName": "hook-tls"})
    lab.put({**certificate, "status": {"conditions": [*conditions, issuer]}})
    failed = await read_results()
    assert failed["cert-manager"][0] == "ok"
    assert failed[check] == (
        "failed",
        "Certificate hook is not ready: Issuer company does not exist",
    )
    ready = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "notAfter": "2027-01-01T00:00:00Z",
    }
    lab.api.patch_status(CERTIFICATE, Key(SYSTEM, "hook"), ready)
    assert (await read_results())[check] == (
        "ok",
        "Certificate hook is ready until 2027-01-01T00:00:00Z",
    )


async def test_errors_name_the_remedy_and_have_their_codes(lab: Lab) -> None:
    unknown, missing = await lab.run("why", "ship/web"), await lab.run("why", "podset/web")
    wrong, usage = await lab.run("why", "web"), await lab.run("nosuch")
    assert (unknown.code, missing.code, wrong.code, usage.code) == (3, 3, 2, 2)
    assert "Kinds of the operators: DemoVolume" in unknown.err
    assert "PodSet web does not exist in namespace default." in missing.err
    assert "Write KIND/NAME, such as podset/web." in wrong.err
    lab.api.access.allow([])
    forbidden = await lab.run("why", "podset/web")
    assert forbidden.code == 4
    assert "Ask an administrator" in forbidden.err


def test_completion_knows_commands_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    main(["__complete", "vm", "re"])
    commands = capsys.readouterr().out.split()
    main(["__complete", "status", "--out"])
    options = capsys.readouterr().out.split()
    main(["__complete", "status", "--as-"])
    flags = capsys.readouterr().out.split()
    main(["__complete", "status", "-o", ""])
    values = capsys.readouterr().out.split()
    assert commands == ["reboot", "rebuild", "resize", "restore", "rescue"]
    assert flags == ["--as-group", "--as-uid", "--as-user-extra"]
    assert (options, values) == (["--output"], ["table", "json", "yaml"])
    assert main(["completion", "bash"]) == 0
    assert "complete -F" in capsys.readouterr().out


def test_help_imports_nothing_that_is_slow() -> None:
    code = (
        "import sys; sys.argv = ['kubectl-slipway', '--help']\n"
        "from kubectl_slipway.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "slow = {'http', 'ssl', 'json', 'yaml', 'subprocess', 'concurrent', 'asyncio', 'libs'}\n"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)"
    )
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "usage: kubectl slipway" in done.stdout
    assert done.stderr.strip() == "[]"


def test_the_code_runs_on_the_oldest_python() -> None:
    for path in Path(__file__).parent.rglob("*.py"):
        if not path.name.endswith(("_test.py", "conftest.py")):
            ast.parse(path.read_text(), feature_version=(3, 11))


def pod(spec: dict[str, Any], status: dict[str, Any]) -> Manifest:
    """Build a pod of a PodSet that runs and is not ready."""
    ready = {"type": "Ready", "status": "False"}
    conditions = [*status.pop("conditions", ()), ready]
    containers = [{"name": "main", "image": "busybox"}]
    state = {"phase": "Running", "conditions": conditions, **status}
    return build_object(
        POD, "web-0", "default", spec={"containers": containers, **spec}, status=state
    )


@pytest.mark.parametrize(
    ("spec", "status", "code", "cause"),
    [
        (
            {"schedulingGates": [{"name": "example.com/quota"}]},
            {
                "phase": "Pending",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
                ],
            },
            "SchedulingGated",
            "example.com/quota is removed",
        ),
        (
            {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]},
            {
                "containerStatuses": [{"name": "main", "ready": True, "state": {}}],
                "initContainerStatuses": [{"name": "proxy", "ready": False, "state": {}}],
            },
            "ProbeFailing",
            "container proxy is not ready",
        ),
        (
            {"readinessGates": [{"conditionType": "example.com/lb"}]},
            {"containerStatuses": [{"name": "main", "ready": True, "state": {}}]},
            "ReadinessGate",
            "the readiness gate example.com/lb is not True",
        ),
        (
            {},
            {
                "containerStatuses": [
                    {"name": "main", "ready": False, "state": {"terminated": {"exitCode": 3}}}
                ]
            },
            "ContainerFailed",
            "ended with exit code 3",
        ),
        (
            {},
            {
                "containerStatuses": [
                    {
                        "name": "main",
                        "ready": False,
                        "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    }
                ]
            },
            "OOMKilled",
            "more memory than its limit",
        ),
        (
            {},
            {
                "containerStatuses": [
                    {
                        "name": "main",
                        "ready": False,
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {
                            "terminated": {"exitCode": 2, "message": "starting\nno such topic\n"}
                        },
                    }
                ]
            },
            "CrashLoopBackOff",
            "last with exit code 2: no such topic",
        ),
    ],
    ids=[
        *("scheduling-gate", "sidecar", "readiness-gate", "between-restarts"),
        *("out-of-memory", "last-words"),
    ],
)
def test_cause_of_a_pod_that_is_not_ready_is_the_real_one(
    spec: dict[str, Any], status: dict[str, Any], code: str, cause: str
) -> None:
    (found,) = find_pod_problem(pod(spec, status), datetime.now(UTC))

    assert found.code == code and cause in found.cause


async def test_status_of_an_operator_outside_the_cluster_is_explained(lab: Lab) -> None:
    """`./dev run` runs an operator without a Deployment; its conditions are evidence."""
    lab.put(podset(status=not_ready("FailedCreate", "pods are forbidden: quota")))
    result = await lab.run("why", "podset/web", "-o", "json")
    lab.put(podset("old"))
    blind = await lab.run("why", "podset/old", "-o", "json")

    assert [each["code"] for each in result.data["findings"]] == [
        "FailedCreate",
        "OperatorNotFound",
    ]
    assert [each["code"] for each in blind.data["findings"]] == ["OperatorMissing"]


async def test_cause_comes_before_symptoms_and_is_not_repeated(lab: Lab) -> None:
    lab.install("podset")
    message = "Pod web-0 exists and belongs to somebody else"
    conditions = not_ready("PodsNotReady", "0 of 1 pods are ready")["conditions"]
    conditions += not_ready("NameTaken", message, ReplicaFailure="True")["conditions"][1:]
    conditions += not_ready("MinimumUnavailable", message, Available="False")["conditions"][1:]
    lab.put(podset(status={"conditions": conditions, "observedGeneration": 1}))
    result = await lab.run("why", "podset/web", "-o", "json")

    shown = await lab.run("why", "podset/web")

    assert [each["code"] for each in result.data["findings"]] == ["NameTaken", "PodsNotReady"]
    assert {each["type"] for each in result.data["conditions"]} == {
        *("Ready", "ReplicaFailure", "Available")
    }
    listed = "Ready=False PodsNotReady, ReplicaFailure=True NameTaken"
    assert f"Conditions: {listed}, Available=False" in " ".join(shown.out.split())


CONTROLS = "\x1b]0;t\x07\x1b[2J\x9b31m\r\x7f\u202e\u2066"
"""What sets the title, clears the screen, changes colors, goes back, and turns text around."""


@pytest.mark.parametrize(
    "command",
    ["why podset/web", "problems", "tree podset/web", "problems -o json", "problems -o yaml"],
)
async def test_text_of_others_never_reaches_the_terminal_as_a_control(
    lab: Lab, command: str
) -> None:
    lab.install("podset")
    parent = lab.api.create(podset(status=not_ready("PodsNotReady", f"quoted: {CONTROLS}end")))
    waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": f"said: {CONTROLS}end"}}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "a", "image": "b", **waiting}]}
    containers = [{"name": "a", "image": "b"}]
    add_child(
        lab,
        parent,
        build_object(POD, "p", "default", spec={"containers": containers}) | {"status": status},
    )
    result = await lab.run(*command.split())
    shown = result.out + result.err
    assert not set(CONTROLS) & set(shown) - set("]0;t[2J31m")
    assert "quoted: " in shown or "tree" in command
    if command.endswith("json"):
        assert CONTROLS in result.data[0]["message"], "programs read what was written"


async def test_report_is_for_its_user_only(lab: Lab, tmp_path: Path) -> None:
    lab.install("podset")
    path = tmp_path / "report.zip"
    await lab.run("report", "--file", str(path))
    assert path.stat().st_mode & 0o777 == 0o600


def test_report_has_a_file_for_an_object_that_is_nested_deeply() -> None:
    deep: Any = 1
    for _ in range(9_000):
        deep = {"k": deep}
    assert "nested too deeply" in render({"spec": deep})

"""Installing, upgrading and uninstalling a release, and what helm prints and packages."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.project.chart_values import OTHER_NAMES
from libs.common.testing.helm import CHARTS, HelmError, render_notes, run_helm
from tests.charts.base import NAMESPACE, SuiteBase, dig

_KEEP = {"helm.sh/resource-policy": "keep"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "protected-metrics-without-a-token": (
        {"settings": {"metricsSecure": True}, "podMonitor": {"enabled": True}},
        "podMonitor.authorization",
    ),
    "unknown-value": ({"replcas": 2}, "replcas"),
    "unknown-setting": ({"settings": {"logLevle": "info"}}, "logLevle"),
    "setting-out-of-range": (
        {"settings": {"maxConcurrentReconciles": 0}},
        "maxConcurrentReconciles",
    ),
    "setting-not-in-the-list": ({"settings": {"logLevel": "loud"}}, "logLevel"),
    "replicas-as-text": ({"replicas": "two"}, "replicas"),
    "digest-without-algorithm": ({"image": {"digest": "0123"}}, "digest"),
    "policy-without-effect": (
        {"hostNetwork": True, "networkPolicy": {"enabled": True}},
        "exclude each other: a NetworkPolicy has no effect",
    ),
    "two-ways-to-watch": (
        {"watch": {"clusterWide": True, "namespaces": ["one"]}},
        "exclude each other: set clusterWide to false",
    ),
    "namespaces-by-name-and-by-selector": (
        {"watch": {"namespaces": ["one"], "namespaceSelector": {"matchLabels": {"a": "b"}}}},
        "watch.namespaceSelector excludes",
    ),
    "exception-without-a-rule": (
        {"watch": {"excludedNamespaces": ["one"], "namespaces": ["two"]}},
        "set clusterWide to true, or leave it empty",
    ),
    "replicas-without-election": (
        {"replicas": 2, "settings": {"leaderElect": False}},
        "set replicas to 1, or leave leaderElect on",
    ),
    "star-among-namespaces": (
        {"watch": {"namespaces": ["*"]}},
        "leave it empty and set watch.clusterWide to true",
    ),
    "part-without-values": ({"watch": None}, "watch"),
    "tag-in-the-repository": ({"image": {"repository": "team/podset:1.2"}}, "repository"),
    "scheme-in-the-registry": ({"image": {"registry": "https://example.com"}}, "registry"),
    "address-for-a-range": (
        {"networkPolicy": {"apiServer": {"cidrs": ["10.0.0.1"]}}},
        "cidrs",
    ),
    "no-port-which-would-be-all": (
        {"networkPolicy": {"apiServer": {"ports": []}}},
        "ports",
    ),
    "name-that-no-service-has": ({"fullnameOverride": "My_Operator"}, "fullnameOverride"),
    "label-that-the-deployment-selects-by": (
        {"podLabels": {"app.kubernetes.io/name": "other"}},
        "podLabels: app.kubernetes.io/name is a label of the chart's own",
    ),
    "standby-before-the-leader-ends": (
        {"settings": {"leaseDurationSeconds": 10}},
        r"must be greater than settings.renewDeadlineSeconds \(10\)",
    ),
    "leader-with-one-try": (
        {"settings": {"retryPeriodSeconds": 9}},
        r"must be greater than 1.2 times settings.retryPeriodSeconds \(9\)",
    ),
    "volume-of-the-chart": (
        {"extraVolumes": [{"name": "tmp", "emptyDir": {}}]},
        "extraVolumes: the chart already has the name tmp: use another name",
    ),
    "mount-of-the-chart": (
        {"extraVolumeMounts": [{"name": "cache", "mountPath": "/tmp"}]},
        "extraVolumeMounts: the chart already has the mountPath /tmp",
    ),
    "variable-twice": (
        {"extraEnv": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        "extraEnv: two entries have the name A: remove one of them",
    ),
    "container-of-the-chart": (
        {"extraContainers": [{"name": "operator", "image": "a"}]},
        "initContainers and extraContainers: the chart already has the name operator",
    ),
    "container-twice": (
        {
            "initContainers": [{"name": "proxy", "image": "a"}],
            "extraContainers": [{"name": "proxy", "image": "a"}],
        },
        "initContainers and extraContainers: two entries have the name proxy",
    ),
    "alert-that-the-chart-does-not-have": (
        {"prometheusRule": {"enabled": True, "disabledAlerts": ["OperatorGone"]}},
        "prometheusRule.disabledAlerts: the chart has no alert OperatorGone; its alerts are ",
    ),
    "image-of-a-stranger": (
        {"image": {"tag": "0.1.0"}},
        "image.registry: slipway/podset would be pulled from Docker Hub",
    ),
    "container-as-root": ({"podSecurityContext": {"runAsUser": 0}}, "runAsUser"),
    "container-that-may-be-root": (
        {"podSecurityContext": {"runAsNonRoot": False}},
        "runAsNonRoot",
    ),
    "no-seccomp-profile": (
        {"podSecurityContext": {"seccompProfile": {"type": "Unconfined"}}},
        "seccompProfile",
    ),
    "privileged-container": ({"securityContext": {"privileged": True}}, "privileged"),
    "capability": ({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}, "capabilities"),
    "capabilities-that-stay": ({"securityContext": {"capabilities": {"drop": []}}}, "drop"),
    "writable-root": (
        {"securityContext": {"readOnlyRootFilesystem": False}},
        "readOnlyRootFilesystem",
    ),
    "rolling-update-without-election": (
        {"strategy": {"type": "RollingUpdate"}, "settings": {"leaderElect": False}},
        "set strategy.type to Recreate",
    ),
    "budget-without-a-number": (
        {"podDisruptionBudget": {"maxUnavailable": None}},
        "minAvailable and maxUnavailable are both null",
    ),
    "scraped-twice": (
        {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
        "every replica would be scraped twice",
    ),
    "common-label-that-the-deployment-selects-by": (
        {"commonLabels": {"app.kubernetes.io/name": "other"}},
        "commonLabels: app.kubernetes.io/name is a label of the chart's own",
    ),
    "certificate-without-webhooks": (
        {"webhooks": {"certManager": {"enabled": True}}},
        "webhooks.certManager.enabled has no effect without webhooks: ",
    ),
    "killed-while-draining": (
        {"terminationGracePeriodSeconds": 20},
        r"must be greater than settings.drainTimeoutSeconds \(20\)",
    ),
}
"""Bad values, and what the message must say about them."""


def _pick_value(spec: Manifest) -> Any:
    """Return a value that a schema of a setting accepts."""
    kinds = {"string": "x" * spec.get("minLength", 1), "boolean": True, "array": []}
    return spec["enum"][0] if "enum" in spec else kinds.get(spec["type"][0], spec.get("minimum", 1))


class RefusalSuite(SuiteBase):
    """What the schema and the templates refuse, which is the same in every chart."""

    @pytest.mark.parametrize("case", REFUSED)
    def test_bad_values_are_refused_by_name(self, case: str) -> None:
        values, message = REFUSED[case]

        with pytest.raises(HelmError, match=message):
            self.render(values)

    def test_names_of_other_charts_are_answered_with_ours(self) -> None:
        values: dict[str, Any] = {}
        for name in OTHER_NAMES:
            *parents, last = name.split(".")
            part = values
            for parent in parents:
                part = part.setdefault(parent, {})
            part[last] = 1

        with pytest.raises(HelmError) as caught:
            self.render(values)

        for name, ours in OTHER_NAMES.items():
            pointer = f"/{name.replace('.', '/')}'"
            line = next(one for one in str(caught.value).splitlines() if pointer in one)
            assert f"this chart calls it {ours}" in line

    def test_settings_of_other_operators_are_refused(self) -> None:
        schema = CHARTS / self.chart / "values.schema.json"
        assert schema.readlink() == Path("../values.schema.json")
        known = json.loads(schema.read_text())["properties"]["settings"]["properties"]
        listed = fastyaml.load((CHARTS / self.chart / "files/settings.yaml").read_text())
        own = {each["name"] for each in listed["settings"]}
        other, spec = next((name, spec) for name, spec in known.items() if name not in own)

        with pytest.raises(HelmError, match=rf"settings\.{other}: this operator has no such"):
            self.render({"settings": {other: _pick_value(spec)}})


class LifecycleSuite(SuiteBase):
    """Hooks, CRDs, notes, the package."""

    def test_crds_are_the_generated_ones_and_are_kept(self) -> None:
        rendered = self.render({}, "CustomResourceDefinition")
        paths = sorted((CHARTS / self.chart / "files" / "crds").glob("*.yaml"))
        generated = [fastyaml.load(path.read_text(encoding="utf-8")) for path in paths]

        assert rendered
        assert [crd["spec"] for crd in rendered] == [crd["spec"] for crd in generated]
        for crd in rendered:
            assert _KEEP.items() <= crd["metadata"]["annotations"].items()

    def test_uninstall_takes_finalizers_off_while_its_permissions_are_there(self) -> None:
        job = self.render_one("Job")
        pod, deployment = dig(job, "spec.template.spec"), self.render_one("Deployment")

        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
        assert pod["containers"][0]["args"] == ["release"]
        assert pod["containers"][0]["env"] == self.render_container()["env"]
        assert pod["serviceAccountName"] == dig(deployment, "spec.template.spec.serviceAccountName")
        assert job["spec"]["ttlSecondsAfterFinished"] > 0, "a failed Job must not stay for ever"

    def test_release_owns_the_lease_but_not_what_the_operator_writes_in_it(self) -> None:
        lease = self.render_one("Lease")

        assert lease["metadata"]["name"] == self.chart
        assert set(lease) == {"apiVersion", "kind", "metadata"}

    def test_pods_of_hooks_are_placed_and_labelled_like_the_operator_without_a_mesh(self) -> None:
        terms: Manifest = {"nodeSelectorTerms": []}
        node = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        values = {
            "priorityClassName": "high",
            "podLabels": {"team": "a", "sidecar.istio.io/inject": "true"},
            "podAnnotations": {"cost": "b", "linkerd.io/inject": "enabled"},
            "affinity": {"nodeAffinity": node, "podAntiAffinity": {"x": []}},
        }
        job, test = self.render_one("Job", values), self.render_one("Pod", values)

        for pod in (dig(job, "spec.template"), test):
            metadata, spec = pod["metadata"], pod["spec"]
            assert spec["priorityClassName"] == "high"
            # A rule that keeps replicas apart would leave no node for a hook.
            assert spec["affinity"] == {"nodeAffinity": node}
            assert {"team": "a", "sidecar.istio.io/inject": "false"}.items() <= dict(
                metadata["labels"]
            ).items()
            assert metadata["annotations"]["cost"] == "b"
            # A Job with a sidecar may never complete, and would block the uninstall.
            assert metadata["annotations"]["linkerd.io/inject"] == "disabled"
            assert metadata["annotations"]["sidecar.istio.io/inject"] == "false"
            assert metadata["annotations"]["consul.hashicorp.com/connect-inject"] == "false"
            assert metadata["labels"]["kuma.io/sidecar-injection"] == "disabled"
        selector = dig(self.render_one("Deployment"), "spec.selector.matchLabels")
        assert not selector.items() <= dig(job, "spec.template.metadata.labels").items()

    def test_variables_of_the_user_replace_those_of_the_chart_everywhere(self) -> None:
        name = f"{self.chart.upper()}_LOG_LEVEL"
        values = {
            "settings": {"logLevel": "info"},
            "extraEnv": [{"name": name, "value": "debug"}, {"name": "POD_NAME", "value": "x"}],
        }
        job = dig(self.render_one("Job", values), "spec.template.spec.containers.0")

        for container in (self.render_container(values), job):
            entries = [(entry["name"], entry.get("value")) for entry in container["env"]]
            assert entries[-2:] == [(name, "debug"), ("POD_NAME", "x")]
            assert len({each for each, _ in entries}) == len(entries), "Helm 4 refuses duplicates"

    def test_helm_test_asks_the_service_for_readiness(self) -> None:
        pod = self.render_one("Pod")
        service = self.render_one("Service")
        url = f"http://{service['metadata']['name']}:8081/readyz"

        assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
        assert dig(pod, "spec.containers.0.args") == ["check", url]

    def test_nothing_but_args_is_run_since_the_image_has_no_shell(self) -> None:
        pods = [*self.render({}, "Deployment", "Job"), self.render_one("Pod")]
        for one in pods:
            for container in (dig(one, "spec.template.spec") or one["spec"])["containers"]:
                assert "command" not in container

    def test_notes_say_what_to_apply_and_how_to_see_it(self) -> None:
        notes = render_notes(self.chart, namespace="team-a")

        assert "kubectl -n team-a apply" in notes
        assert f"helm -n team-a test {self.chart}" in notes
        assert "the namespace team-a." in notes
        assert "{{" not in notes

    def test_notes_follow_the_values(self) -> None:
        values = {
            "replicas": 2,
            "watch": {"namespaces": ["one", "two"]},
            "serviceMonitor": {"enabled": True},
            "crds": {"keep": False},
        }
        notes = render_notes(self.chart, values)

        assert "the namespaces one, two." in notes
        assert "kubectl -n one apply" in notes
        assert f"logs deployment/{self.chart} --follow --all-pods" in notes, "of all replicas"
        assert "hot standby" not in notes and "serviceMonitor" not in notes
        assert "an uninstall deletes the CRDs" in notes

    def test_notes_warn_if_users_of_the_namespace_can_become_the_operator(self) -> None:
        rules = self.render({"watch": {"namespaces": [NAMESPACE]}}, "ClusterRole")
        writes = {verb for role in rules for rule in role["rules"] for verb in rule["verbs"]}
        own = render_notes(self.chart, namespace=NAMESPACE)
        mixed = render_notes(
            self.chart, {"watch": {"namespaces": [NAMESPACE, "one"]}}, namespace=NAMESPACE
        )
        apart = render_notes(self.chart, {"watch": {"namespaces": ["one"]}}, namespace=NAMESPACE)
        everywhere = render_notes(self.chart, {"watch": {"clusterWide": True}})

        assert ("WARNING" in own) == bool(writes - {"get", "list", "watch"})
        for notes in (mixed, everywhere):
            assert "WARNING: The operator has permissions outside the namespace" in notes
        assert "watch.namespaces. See docs/explanation/operator-namespace.md." in mixed
        assert "WARNING" not in apart and f"tokens in the namespace {NAMESPACE}" in apart

    def test_notes_list_global_keys_that_have_no_effect(self) -> None:
        values = {"global": {"cattle": {"clusterId": "c-1"}, "imageRegistri": "m.io"}}

        assert "ignores these keys under global: cattle, imageRegistri." in render_notes(
            self.chart, values
        )
        assert "under global" not in render_notes(self.chart)

    def test_notes_say_what_is_left_to_choose(self) -> None:
        everywhere = render_notes(self.chart, {"watch": {"clusterWide": True}})
        mirrored = render_notes(self.chart, {"image": {"registry": "registry.example.com"}})
        limited = render_notes(self.chart, {"rbac": {"clusterRoles": False}})

        assert "in all namespaces.\n" in everywhere and "Other namespaces" not in everywhere
        assert f"the image registry.example.com/slipway/{self.chart}:" in mirrored
        assert "Other namespaces" in mirrored and "rbac.clusterRoles" not in mirrored
        assert "--show-only templates/cluster-rbac.yaml" in limited

    def test_settings_may_be_null_where_all_of_them_are_commented_out(self) -> None:
        assert self.render({"settings": None}) == self.render()

    def test_chart_can_be_a_dependency_under_another_name(self, tmp_path: Path) -> None:
        """Its condition is a value of it, and what it runs is still the same operator."""
        chart = {
            "apiVersion": "v2",
            "name": "platform",
            "version": "1.0.0",
            "dependencies": [
                {"name": self.chart, "alias": "mine", "condition": "mine.enabled", "version": "*"}
            ],
        }
        (tmp_path / "charts").mkdir()
        (tmp_path / "charts" / self.chart).symlink_to(CHARTS / self.chart)
        (tmp_path / "Chart.yaml").write_text(json.dumps(chart), encoding="utf-8")

        def render(values: dict[str, Any]) -> list[Manifest]:
            shared = {"imageRegistry": "mirror.example.com"}
            stdin = json.dumps({"mine": values, "global": shared})
            text = run_helm("template", "r", str(tmp_path), "--values", "-", stdin=stdin)
            return [one for one in fastyaml.load_all(text) if one]

        objects = render({"enabled": True, "watch": {"clusterWide": True}})
        names = {f"{one['kind']}/{one['metadata']['name']}" for one in objects}
        (deployment,) = (one for one in objects if one["kind"] == "Deployment")
        env = dig(deployment, "spec.template.spec.containers.0.env")

        assert not render({"enabled": False})
        assert {"Deployment/r-mine", f"Lease/{self.chart}"} <= names
        assert {"name": f"{self.chart.upper()}_WATCH_NAMESPACES", "value": "*"} in env
        assert deployment["metadata"]["labels"]["app.kubernetes.io/name"] == self.chart
        image = dig(deployment, "spec.template.spec.containers.0.image")
        assert image == f"mirror.example.com/slipway/{self.chart}:0.1.0"

    def test_lint_finds_nothing(self) -> None:
        text = run_helm("lint", "--strict", str(CHARTS / self.chart))

        assert "icon is recommended" not in text

    def test_artifact_hub_is_told_every_crd_with_an_example(self) -> None:
        chart = fastyaml.load((CHARTS / self.chart / "Chart.yaml").read_text(encoding="utf-8"))
        annotations = chart["annotations"]
        paths = (CHARTS / self.chart / "files" / "crds").glob("*.yaml")
        crds = [fastyaml.load(path.read_text(encoding="utf-8")) for path in paths]
        named = {one["name"]: one for one in fastyaml.load(annotations["artifacthub.io/crds"])}
        examples = fastyaml.load(annotations["artifacthub.io/crdsExamples"])

        assert set(named) == {crd["metadata"]["name"] for crd in crds}
        assert all(one["description"] for one in named.values())
        assert {one["kind"] for one in examples} <= {crd["spec"]["names"]["kind"] for crd in crds}
        assert chart["icon"].startswith("data:image/svg+xml;base64,")
        assert chart["maintainers"]

    def test_package_holds_all_that_an_installation_needs_and_no_tests(
        self, tmp_path: Path
    ) -> None:
        run_helm("package", str(CHARTS / self.chart), "--destination", str(tmp_path))
        (package,) = tmp_path.glob("*.tgz")
        with tarfile.open(package) as archive:
            names = {name.removeprefix(f"{self.chart}/") for name in archive.getnames()}

        assert {"values.schema.json", "templates/NOTES.txt", "README.md"} <= names
        assert "charts/operator-common/templates/_deployment.tpl" in names
        assert not [name for name in names if name.endswith(".py") or "BUILD" in name]
        # The package alone must render: nothing may hang on the checkout around it.
        flags = ("--set", "image.registry=registry.example.com")
        assert "kind: Deployment" in run_helm("template", "x", str(package), *flags)

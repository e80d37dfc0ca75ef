"""What the objects of a chart must be like, whatever the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from libs.common.kinds import Manifest
from libs.common.testing.helm import CHARTS, render_chart
from tests.charts.base import (
    CLUSTER_SCOPED,
    EVERYTHING,
    NAMESPACE,
    POLICIES,
    SuiteBase,
    dig,
    find_pods,
    name_of,
)

_LONGEST_RELEASE = "r" * 53
_LONGEST_NAMESPACE = "n" * 63
_STANDARD = frozenset({"name", "instance", "component", "part-of", "managed-by"})


class ObjectSuite(SuiteBase):
    """Names, labels, namespaces and pods."""

    def test_defaults_install_nothing_beyond_the_operator(self) -> None:
        kinds = sorted({one["kind"] for one in self.render()} - CLUSTER_SCOPED)

        assert kinds == [
            *("Deployment", "Job", "Lease", "Pod", "Role", "RoleBinding"),
            *(("Secret",) if self.signs else ()),
            *("Service", "ServiceAccount"),
        ]

    def test_defaults_install_nothing_cluster_scoped_but_crds_and_what_reads_such_kinds(
        self,
    ) -> None:
        rules = (CHARTS / self.chart / "files" / "rbac.yaml").read_text(encoding="utf-8")
        expected = {"CustomResourceDefinition"}
        if "clusterRules: []" not in rules:
            expected |= {"ClusterRole", "ClusterRoleBinding"}
        if self.guards:
            expected |= POLICIES

        assert {one["kind"] for one in self.render()} & CLUSTER_SCOPED == expected

    def test_everything_namespaced_names_the_namespace_of_the_release(self) -> None:
        for one in self.render(EVERYTHING):
            scoped = one["kind"] not in CLUSTER_SCOPED
            assert dig(one, "metadata.namespace") == (NAMESPACE if scoped else None), name_of(one)

    def test_every_object_has_the_standard_labels(self) -> None:
        for one in self.render(EVERYTHING):
            labels = one["metadata"]["labels"]
            assert {f"app.kubernetes.io/{name}" for name in _STANDARD} <= set(labels), name_of(one)
            assert labels["app.kubernetes.io/name"] == self.chart

    def test_names_and_labels_stay_valid_with_the_longest_release(self) -> None:
        manifests = render_chart(
            self.chart, EVERYTHING, release=_LONGEST_RELEASE, namespace=_LONGEST_NAMESPACE
        )
        for one in manifests:
            if one["kind"] != "CustomResourceDefinition":
                assert len(one["metadata"]["name"]) <= 63, name_of(one)
            assert all(len(value) <= 63 for value in one["metadata"]["labels"].values())

    def test_two_releases_in_two_namespaces_share_no_cluster_scoped_object(self) -> None:
        values = {"crds": {"install": False}, "watch": {"clusterWide": True}}
        names = [
            {
                name_of(one)
                for one in render_chart(self.chart, values, namespace=namespace)
                if one["kind"] in CLUSTER_SCOPED
            }
            for namespace in ("one", "two")
        ]

        assert names[0] and not names[0] & names[1]

    def test_release_with_a_dot_has_a_service_that_may_be_named_so(self) -> None:
        (service,) = render_chart(self.chart, release=f"{self.chart}.v1.2", show_only=["Service"])

        assert service["metadata"]["name"] == f"{self.chart}-v1-2"

    @pytest.mark.parametrize("release", ["web", "my-{chart}"])
    def test_name_says_which_operator_it_is_under_any_release(self, release: str) -> None:
        release = release.format(chart=self.chart)
        expected = release if self.chart in release else f"{release}-{self.chart}"
        deployment = render_chart(self.chart, release=release, show_only=["Deployment"])[0]

        assert deployment["metadata"]["name"] == expected

    def test_every_pod_is_restricted(self) -> None:
        pods = find_pods(self.render(EVERYTHING))

        assert len(pods) == 3, "the operator, the clean-up Job and the test"
        for spec in pods:
            context = spec["securityContext"]
            assert context["runAsNonRoot"] is True
            assert context["runAsUser"] == context["runAsGroup"] == 65532
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
            assert all(set(volume) <= {"name", "emptyDir"} for volume in spec["volumes"])
            assert all(volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"])
            for container in spec["containers"]:
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }

    @pytest.mark.parametrize(
        "values",
        [
            {"global": {"platformAssignsUserIds": True}},
            {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}},
        ],
        ids=["global", "nulls"],
    )
    def test_platform_can_assign_users_and_groups(self, values: Mapping[str, Any]) -> None:
        pods = find_pods(self.render({**EVERYTHING, **values}))

        assert len(pods) == 3
        for spec in pods:
            assert spec["securityContext"] == {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            }

    def test_common_labels_and_annotations_are_on_every_object_and_pod(self) -> None:
        common = {"commonLabels": {"team": "a"}, "commonAnnotations": {"cost": "b"}}
        objects = self.render({**EVERYTHING, **common, "rbac": {"userRoles": True}})
        templates = [found for one in objects if (found := dig(one, "spec.template.metadata"))]

        assert {name_of(one) for one in objects} == {
            name_of(one) for one in self.render(EVERYTHING)
        }
        assert len(templates) == 2, "the operator and the clean-up Job"
        for metadata in (*(one["metadata"] for one in objects), *templates):
            assert metadata["labels"]["team"] == "a"
            assert metadata["annotations"]["cost"] == "b"
        selector = dig(self.render_one("Deployment", common), "spec.selector.matchLabels")
        assert selector == dig(self.render_one("Deployment"), "spec.selector.matchLabels")

    def test_monitor_in_another_namespace_finds_the_operator(self) -> None:
        for kind, value in (("ServiceMonitor", "serviceMonitor"), ("PodMonitor", "podMonitor")):
            values = {value: {"enabled": True, "namespace": "monitoring"}}
            monitor = self.render_one(kind, values)

            assert dig(monitor, "spec.namespaceSelector") == {"matchNames": [NAMESPACE]}

    def test_pod_monitor_gives_targets_the_job_that_alerts_select(self) -> None:
        monitor = self.render_one("PodMonitor", {"podMonitor": {"enabled": True}})

        relabelings = dig(monitor, "spec.podMetricsEndpoints.0.relabelings")
        assert relabelings == [{"targetLabel": "job", "replacement": self.chart}]

    def test_every_container_has_requests_and_a_memory_limit(self) -> None:
        for spec in find_pods(self.render(EVERYTHING)):
            for container in spec["containers"]:
                assert {"cpu", "memory"} <= set(container["resources"]["requests"])
                assert "memory" in container["resources"]["limits"]

    def test_no_pod_gets_service_links_or_a_token_that_it_does_not_use(self) -> None:
        for spec in find_pods(self.render(EVERYTHING)):
            uses_api = "serviceAccountName" in spec
            assert spec["enableServiceLinks"] is False
            assert spec["automountServiceAccountToken"] is uses_api
        account = self.render_one("ServiceAccount")
        assert account["automountServiceAccountToken"] is False

    def test_service_selects_the_operator_alone(self) -> None:
        selector = self.render_one("Service")["spec"]["selector"]
        deployment = self.render_one("Deployment")
        hooks = [self.render_one("Pod")["metadata"]["labels"]]
        hooks.append(dig(self.render_one("Job"), "spec.template.metadata.labels"))

        assert selector.items() <= dig(deployment, "spec.template.metadata.labels").items()
        assert selector == dig(deployment, "spec.selector.matchLabels")
        assert not any(selector.items() <= labels.items() for labels in hooks)

    def test_hooks_come_to_an_end_where_a_namespace_lets_nothing_out(self) -> None:
        """An uninstall waits for the clean-up, which asks the API server; the test asks a pod."""
        labels = [dig(self.render_one("Job"), "spec.template.metadata.labels")]
        labels.append(self.render_one("Pod")["metadata"]["labels"])
        labels.append(dig(self.render_one("Deployment"), "spec.template.metadata.labels"))
        operator, hooks = self.render({"networkPolicy": {"enabled": True}}, "NetworkPolicy")
        service = self.render_one("Service")["spec"]["selector"]

        assert [_selects(hooks["spec"]["podSelector"], each) for each in labels] == [1, 1, 0]
        assert [_selects(operator["spec"]["podSelector"], each) for each in labels] == [0, 0, 1]
        *common, probes = hooks["spec"]["egress"]
        assert common == operator["spec"]["egress"]
        assert probes["to"] == [{"podSelector": {"matchLabels": service}}]
        assert not hooks["spec"].get("ingress")
        assert "Ingress" in hooks["spec"]["policyTypes"]

    def test_ports_and_probes_are_the_same_in_every_operator(self) -> None:
        container = self.render_container()
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}

        assert ports == {"metrics": 8080, "probes": 8081}
        for probe, path in {
            "startup": "/healthz",
            "liveness": "/healthz",
            "readiness": "/readyz",
        }.items():
            assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "probes"}

    def test_rolling_update_starts_new_pods_before_it_stops_old_ones(self) -> None:
        strategy = dig(self.render_one("Deployment"), "spec.strategy")

        assert strategy == {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
        }

    def test_update_without_an_election_never_runs_two_replicas(self) -> None:
        values = {"settings": {"leaderElect": False}}
        strategy = dig(self.render_one("Deployment", values), "spec.strategy")

        assert strategy == {"type": "Recreate"}


def _selects(selector: Manifest, labels: Mapping[str, str]) -> bool:
    expressions = selector.get("matchExpressions", [])
    assert all(each["operator"] == "In" for each in expressions)
    chosen = all(labels.get(each["key"]) in each["values"] for each in expressions)
    return chosen and selector["matchLabels"].items() <= labels.items()

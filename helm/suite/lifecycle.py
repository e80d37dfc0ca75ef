"""Installing, upgrading and uninstalling a release, and what helm prints and packages."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from helm.suite.base import SuiteBase, dig
from libs.common import fastyaml
from libs.common.testing.helm import CHARTS, HelmError, render_notes, run_helm

_KEEP = {"helm.sh/resource-policy": "keep"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown-value": ({"replcas": 2}, "replcas"),
    "unknown-setting": ({"settings": {"logLevle": "info"}}, "logLevle"),
    "setting-out-of-range": (
        {"settings": {"maxConcurrentReconciles": 0}},
        "maxConcurrentReconciles",
    ),
    "setting-not-in-the-list": ({"settings": {"logLevel": "loud"}}, "logLevel"),
    "replicas-as-text": ({"replicas": "two"}, "replicas"),
    "digest-without-algorithm": ({"image": {"digest": "0123"}}, "digest"),
    "two-ways-to-watch": (
        {"watch": {"clusterWide": True, "namespaces": ["one"]}},
        "exclude each other: set clusterWide to false",
    ),
    "replicas-without-election": (
        {"replicas": 2, "settings": {"leaderElect": False}},
        "set replicas to 1, or leave leaderElect on",
    ),
    "killed-while-draining": (
        {"terminationGracePeriodSeconds": 20},
        r"must be greater than settings.drainTimeoutSeconds \(20\)",
    ),
}
"""Bad values, and what the message must say about them."""


class LifecycleSuite(SuiteBase):
    """Hooks, CRDs, notes, the package."""

    @pytest.mark.parametrize("case", REFUSED)
    def test_bad_values_are_refused_by_name(self, case: str) -> None:
        values, message = REFUSED[case]

        with pytest.raises(HelmError, match=message):
            self.render(values)

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
        assert "hot standby" not in notes and "serviceMonitor" not in notes
        assert "an uninstall deletes the CRDs" in notes

    def test_notes_say_what_is_left_to_choose(self) -> None:
        everywhere = render_notes(self.chart, {"watch": {"clusterWide": True}})
        mirrored = render_notes(self.chart, {"image": {"registry": "registry.example.com"}})

        assert "in all namespaces.\n" in everywhere and "Other namespaces" not in everywhere
        assert f"the image slipway/{self.chart}:" in everywhere and "cannot pull" in everywhere
        assert f"the image registry.example.com/slipway/{self.chart}:" in mirrored
        assert "Other namespaces" in mirrored and "cannot pull" not in mirrored

    def test_lint_finds_nothing(self) -> None:
        run_helm("lint", "--strict", str(CHARTS / self.chart))

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
        assert "kind: Deployment" in run_helm("template", "x", str(package))

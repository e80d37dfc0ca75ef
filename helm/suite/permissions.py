"""Least privilege: what the operator may do, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helm.suite.base import EVERYTHING, NAMESPACE, SuiteBase, dig
from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.testing.helm import CHARTS

_ROLES = ("ClusterRole", "Role")
_BINDINGS = ("ClusterRoleBinding", "RoleBinding")
_DANGEROUS = frozenset({"*", "bind", "escalate", "impersonate"})


class PermissionSuite(SuiteBase):
    """Roles, bindings and where they are."""

    def generated(self) -> Manifest:
        """Read the permissions that the chart is to grant."""
        path = CHARTS / self.chart / "files" / "rbac.yaml"
        rules: Manifest = fastyaml.load(path.read_text(encoding="utf-8"))
        return rules

    def places(self, values: Mapping[str, Any] | None = None) -> dict[str, Manifest]:
        """Render the roles, keyed by `<namespace>/<name>`; cluster roles by `/<name>`."""
        return {
            f"{dig(role, 'metadata.namespace') or ''}/{role['metadata']['name']}": role
            for role in self.render(values, *_ROLES)
        }

    def test_default_permissions_end_at_the_namespace_of_the_release(self) -> None:
        rules, roles = self.generated(), self.places()
        expected = {
            f"{NAMESPACE}/{self.chart}": rules["rules"],
            f"{NAMESPACE}/{self.chart}-leader": rules["operatorNamespaceRules"],
        }
        if rules["clusterRules"]:
            expected[f"/{self.chart}-{NAMESPACE}"] = rules["clusterRules"]

        assert {place: role["rules"] for place, role in roles.items()} == expected

    def test_each_watched_namespace_gets_a_role_and_no_other_does(self) -> None:
        roles = self.places({"watch": {"namespaces": ["one", "two"]}})
        rules = self.generated()["rules"]

        assert roles[f"one/{self.chart}"]["rules"] == rules
        assert roles[f"two/{self.chart}"]["rules"] == rules
        assert f"{NAMESPACE}/{self.chart}" not in roles
        assert f"{NAMESPACE}/{self.chart}-leader" in roles

    def test_watching_all_namespaces_takes_one_cluster_role(self) -> None:
        roles, rules = self.places({"watch": {"clusterWide": True}}), self.generated()

        assert set(roles) == {f"/{self.chart}-{NAMESPACE}", f"{NAMESPACE}/{self.chart}-leader"}
        cluster = roles[f"/{self.chart}-{NAMESPACE}"]
        assert cluster["rules"] == [*rules["rules"], *rules["clusterRules"]]

    def test_every_role_is_bound_to_the_service_account_alone(self) -> None:
        for values in ({}, {"watch": {"clusterWide": True}}, {"watch": {"namespaces": ["one"]}}):
            roles = {(one["kind"], key) for key, one in self.places(values).items()}
            bound = set()
            for binding in self.render(values, *_BINDINGS):
                account = {"kind": "ServiceAccount", "name": self.chart, "namespace": NAMESPACE}
                assert binding["subjects"] == [account]
                place = dig(binding, "metadata.namespace") or ""
                bound.add((binding["roleRef"]["kind"], f"{place}/{binding['roleRef']['name']}"))
            assert bound == roles

    def test_no_rule_has_wildcards_or_raises_rights(self) -> None:
        for role in self.render({**EVERYTHING, "watch": {"clusterWide": True}}, *_ROLES):
            for rule in role["rules"]:
                assert not _DANGEROUS & {*rule["verbs"], *rule["resources"], *rule["apiGroups"]}

    def test_user_roles_join_the_built_in_ones_when_asked_for(self) -> None:
        prefix = "rbac.authorization.k8s.io/aggregate-to-"
        roles = self.places({"rbac": {"userRoles": True}})

        for kind in self.generated()["kinds"]:
            viewer = roles[f"/{self.chart}-{kind['plural']}-viewer"]
            editor = roles[f"/{self.chart}-{kind['plural']}-editor"]
            assert viewer["rules"] == kind["viewer"]
            assert editor["rules"] == kind["editor"]
            assert f"{prefix}view" in viewer["metadata"]["labels"]
            assert {f"{prefix}edit", f"{prefix}admin"} <= set(editor["metadata"]["labels"])

    def test_rbac_create_false_leaves_permissions_to_the_user(self) -> None:
        assert not self.render({"rbac": {"create": False}}, *_ROLES, *_BINDINGS)

"""Least privilege: what the operator may do, and where."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.testing.helm import CHARTS, run_helm, with_registry
from tests.charts.base import EVERYTHING, NAMESPACE, POLICIES, SuiteBase, dig

_ROLES = ("ClusterRole", "Role")
_BINDINGS = ("ClusterRoleBinding", "RoleBinding")
_DANGEROUS = frozenset({"*", "bind", "escalate", "impersonate"})


class PermissionSuite(SuiteBase):
    """Roles, bindings and their namespaces."""

    def generated(self) -> Manifest:
        """Read the permissions that the chart should grant."""
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
        assert (roles.pop(f"{NAMESPACE}/{self.chart}-signing", None) is not None) == self.signs
        expected = {
            f"{NAMESPACE}/{self.chart}": rules["rules"],
            f"{NAMESPACE}/{self.chart}-leader": rules["operatorNamespaceRules"],
        }
        if rules["clusterRules"]:
            expected[f"/{self.chart}-{NAMESPACE}"] = rules["clusterRules"]

        assert {place: role["rules"] for place, role in roles.items()} == expected

    def test_readme_says_whether_permissions_end_at_the_namespace(self) -> None:
        readme = (CHARTS / self.chart / "README.md").read_text(encoding="utf-8")
        confined = "and has no permissions in others" in " ".join(readme.split())

        assert confined is not bool(self.generated()["clusterRules"])
        assert confined is not ("A ClusterRole permits more" in " ".join(readme.split()))

    def test_each_watched_namespace_gets_its_permissions_and_no_other_does(self) -> None:
        values = {"watch": {"namespaces": ["one", "two"]}}
        roles, generated = self.places(values), self.generated()
        bindings = {
            dig(one, "metadata.namespace"): one["roleRef"]
            for one in self.render(values, "RoleBinding")
        }

        assert set(bindings) == {NAMESPACE, "one", "two"}
        assert f"{NAMESPACE}/{self.chart}" not in roles
        for name in ("one", "two"):
            if generated["finalizers"]:
                assert bindings[name]["kind"] == "ClusterRole"
                role = roles[f"/{bindings[name]['name']}"]
                assert role["rules"][:-1] == generated["rules"]
            else:
                assert roles[f"{name}/{self.chart}"]["rules"] == generated["rules"]

    def test_operator_with_finalizers_may_guard_its_binding_in_other_namespaces(self) -> None:
        values = {"watch": {"namespaces": ["one", NAMESPACE]}}
        variable = f"{self.chart.upper()}_ROLE_BINDING"
        guards = [
            rule
            for role in self.render(values, *_ROLES)
            for rule in role["rules"]
            if "rolebindings" in rule["resources"]
        ]
        if not self.generated()["finalizers"]:
            assert not guards and variable not in self.render_env(values)
            return
        (name,) = (
            one["metadata"]["name"]
            for one in self.render(values, "RoleBinding")
            if dig(one, "metadata.namespace") == "one"
        )
        (guard,) = guards

        assert guard["resourceNames"] == [name] and guard["verbs"] == ["get", "patch"]
        assert self.render_env(values)[variable] == name
        # In the namespace of the release the operator is deleted as well.
        assert f"{NAMESPACE}/{self.chart}" in self.places(values)
        assert variable not in self.render_env()

    def test_namespaces_by_selector_take_one_cluster_role_that_lists_namespaces(self) -> None:
        requirements = [
            {"key": "stage", "operator": "In", "values": ["dev", "test"]},
            {"key": "legacy", "operator": "DoesNotExist"},
        ]
        selector = {"matchLabels": {"tenant": "yes"}, "matchExpressions": requirements}
        values = {"watch": {"namespaceSelector": selector}}
        env, rules = self.render_env(values), self.generated()
        roles = self.places(values)
        cluster = roles[f"/{self.chart}-{NAMESPACE}"]["rules"]

        prefix = self.chart.upper()
        text = "tenant=yes,stage in (dev,test),!legacy"
        assert env[f"{prefix}_WATCH_NAMESPACE_SELECTOR"] == text
        assert f"{prefix}_WATCH_NAMESPACES" not in env
        assert set(roles) == set(self.places({"watch": {"clusterWide": True}}))
        namespaces = {"apiGroups": [""], "resources": ["namespaces"]}
        read = {**namespaces, "verbs": ["get", "list", "watch"]}
        assert cluster == [*rules["rules"], *rules["clusterRules"], read]

    def test_watching_all_namespaces_takes_one_cluster_role(self) -> None:
        roles, rules = self.places({"watch": {"clusterWide": True}}), self.generated()

        expected = {f"/{self.chart}-{NAMESPACE}", f"{NAMESPACE}/{self.chart}-leader"}
        signing = {f"{NAMESPACE}/{self.chart}-signing"} if self.signs else set()
        assert set(roles) == expected | signing
        cluster = roles[f"/{self.chart}-{NAMESPACE}"]
        assert cluster["rules"] == [*rules["rules"], *rules["clusterRules"]]

    def test_every_role_is_bound_only_to_the_service_account(self) -> None:
        for values in ({}, {"watch": {"clusterWide": True}}, {"watch": {"namespaces": ["one"]}}):
            roles = {(one["kind"], key) for key, one in self.places(values).items()}
            bound = set()
            for binding in self.render(values, *_BINDINGS):
                account = {"kind": "ServiceAccount", "name": self.chart, "namespace": NAMESPACE}
                assert binding["subjects"] == [account]
                # A ClusterRole may be bound in one namespace only.
                role_kind = binding["roleRef"]["kind"]
                place = dig(binding, "metadata.namespace") if role_kind == "Role" else ""
                bound.add((binding["roleRef"]["kind"], f"{place}/{binding['roleRef']['name']}"))
            assert bound == roles

    def test_no_rule_has_wildcards_or_escalates_permissions(self) -> None:
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
            joined = {label for label in editor["metadata"]["labels"] if label.startswith(prefix)}
            both = {f"{prefix}edit", f"{prefix}admin"}
            # What holds for the whole cluster is for those whom an administrator names.
            assert joined == (both if kind["scope"] == "Namespaced" else set())

    def test_teams_can_bind_a_role_that_administrators_prepared(self) -> None:
        prepared = self.places({"rbac": {"teamRoles": True}})
        role, binder = f"/{self.chart}-operator", f"/{self.chart}-operator-binder"

        assert prepared[role]["rules"] == self.generated()["rules"]
        assert prepared[binder]["rules"] == [
            {
                "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["clusterroles"],
                "resourceNames": [f"{self.chart}-operator"],
                "verbs": ["bind"],
            }
        ]
        for one in (role, binder):
            labels = prepared[one]["metadata"]["labels"]
            assert not [name for name in labels if "aggregate-to" in name], "nobody has it unasked"

        values = {"rbac": {"existingClusterRole": f"{self.chart}-operator", "clusterRoles": False}}
        values |= {"watch": {"namespaces": [NAMESPACE, "one"]}}
        bindings = [
            one for one in self.render(values, "RoleBinding") if one["roleRef"]["kind"] != "Role"
        ]
        assert {one["metadata"]["namespace"] for one in bindings} == {NAMESPACE, "one"}
        assert {one["roleRef"]["name"] for one in bindings} == {f"{self.chart}-operator"}
        assert not self.render(values, "ClusterRole", "ClusterRoleBinding")
        assert f"{NAMESPACE}/{self.chart}" not in self.places(values)
        assert f"{self.chart.upper()}_ROLE_BINDING" not in self.render_env(values)

    def test_permissions_in_namespaces_have_a_template_of_their_own(self) -> None:
        flags = ("--namespace", NAMESPACE, "--show-only", "templates/rbac.yaml")
        text = run_helm(
            *("template", self.chart, str(CHARTS / self.chart), *flags, "--values", "-"),
            stdin=json.dumps(with_registry(EVERYTHING)),
        )
        alone = [one for one in fastyaml.load_all(text) if one]

        assert {one["kind"] for one in alone} == {"Role", "RoleBinding"}
        assert alone == self.render(EVERYTHING, "Role", "RoleBinding")

    def test_tenants_can_read_only_the_cluster_kinds_that_they_name(self) -> None:
        named = {"InstanceSize", "IPPool", "ProviderNetwork"}
        kinds = [each for each in self.generated()["kinds"] if each["kind"] in named]
        expected = {f"{self.chart}-{each['plural']}-viewer" for each in kinds}

        def list_bindings(**rbac: Any) -> dict[str, Any]:
            found = self.render({"rbac": {"userRoles": True, **rbac}}, "ClusterRoleBinding")
            return {
                each["metadata"]["name"]: each["subjects"]
                for each in found
                if each["subjects"][0]["kind"] == "Group"
            }

        bindings = list_bindings(catalogGroups=["tenants"])
        group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "tenants"}
        assert bindings == {name: [group] for name in expected}
        assert set(list_bindings()) == expected
        assert not list_bindings(catalogGroups=[])

    def test_administrators_can_create_the_cluster_roles_alone(self) -> None:
        cluster = ("ClusterRole", "ClusterRoleBinding", *(sorted(POLICIES) if self.guards else ()))
        everywhere = {"watch": {"clusterWide": True}}
        values = {**EVERYTHING, **everywhere, "rbac": {"userRoles": True, "clusterRoles": False}}
        whole = {**values, "rbac": {"userRoles": True, "clusterRoles": True}}
        stdin = json.dumps(with_registry(whole))
        files = ("cluster-rbac", *(("address-guard",) if self.guards else ()))
        shown = (f"--show-only=templates/{name}.yaml" for name in files)
        flags = ("--namespace", NAMESPACE, *shown)
        text = run_helm(
            "template", self.chart, str(CHARTS / self.chart), *flags, "--values", "-", stdin=stdin
        )
        alone = [one for one in fastyaml.load_all(text) if one]

        assert not self.render(values, *cluster)
        assert self.render(values) == [one for one in self.render(whole) if one not in alone]
        assert {one["kind"] for one in alone} == set(cluster)
        assert alone == self.render(whole, *cluster)

    def test_rbac_create_false_leaves_permissions_to_the_user(self) -> None:
        assert not self.render({"rbac": {"create": False}}, *_ROLES, *_BINDINGS)

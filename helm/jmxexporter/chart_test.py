"""Tests of the chart of the operator jmxexporter."""

from operators.jmxexporter.controller import OPERATOR
from operators.jmxexporter.webhook import PATH
from tests.charts import ChartSuite


class TestJmxExporterChart(ChartSuite):
    """The chart holds what every chart must hold."""

    operator = OPERATOR
    signs = True
    computed = frozenset({"JMXEXPORTER_INJECTOR_IMAGE", "JMXEXPORTER_SIGNING_SECRET"})

    def test_injectors_are_of_the_image_of_the_operator(self) -> None:
        values = {"image": {"registry": "registry.example.com", "tag": "1.2.3"}}

        own = self.render_container(values)["image"]
        variables = {
            each["name"]: each.get("value") for each in self.render_container(values)["env"]
        }

        assert variables["JMXEXPORTER_INJECTOR_IMAGE"] == own
        assert "1.2.3" in own

    def test_webhook_is_created_only_on_request(self) -> None:
        assert not self.render({}, "MutatingWebhookConfiguration")
        assert not [
            each for each in self.render({}, "Secret") if "webhook" in each["metadata"]["name"]
        ]

        values = {"settings": {"webhooks": True}}
        (configuration,) = self.render(values, "MutatingWebhookConfiguration")
        (webhook,) = configuration["webhooks"]

        assert webhook["failurePolicy"] == "Ignore", "no pod waits for us"
        assert "caBundle" not in webhook["clientConfig"], "an upgrade must not take it away"
        assert webhook["clientConfig"]["service"]["path"] == PATH
        selector = webhook["namespaceSelector"]
        assert selector["matchLabels"] == {"banzaicloud.com/jmx-startup": "enabled"}
        (expression,) = selector["matchExpressions"]
        assert expression["values"] == ["team-a"], "no namespace that is not watched is asked"

    def test_webhook_is_as_strict_and_where_the_values_say(self) -> None:
        webhooks = {"failurePolicy": "Fail", "timeoutSeconds": 10}
        values = {
            "settings": {"webhooks": True},
            "webhooks": webhooks,
            "ports": {"webhook": 10250},
            "service": {"ipFamilyPolicy": "RequireDualStack"},
        }
        (webhook,) = self.render_one("MutatingWebhookConfiguration", values)["webhooks"]
        ports = {
            one["name"]: one["containerPort"] for one in self.render_container(values)["ports"]
        }

        assert {name: webhook[name] for name in webhooks} == webhooks
        assert ports["webhook"] == 10250
        assert self.render_env(values)["JMXEXPORTER_WEBHOOK_BIND_ADDRESS"] == ":10250"
        assert {one["spec"]["ipFamilyPolicy"] for one in self.render(values, "Service")} == {
            "RequireDualStack"
        }

    def test_webhook_of_the_whole_cluster_still_needs_the_label(self) -> None:
        values = {"settings": {"webhooks": True}, "watch": {"clusterWide": True}}
        (configuration,) = self.render(values, "MutatingWebhookConfiguration")

        assert set(configuration["webhooks"][0]["namespaceSelector"]) == {"matchLabels"}

    def test_webhook_is_not_called_for_excluded_namespaces(self) -> None:
        watch = {"clusterWide": True, "excludedNamespaces": ["kube-system"]}
        values = {"settings": {"webhooks": True}, "watch": watch}
        (configuration,) = self.render(values, "MutatingWebhookConfiguration")
        (expression,) = configuration["webhooks"][0]["namespaceSelector"]["matchExpressions"]

        assert expression["operator"] == "NotIn"
        assert expression["values"] == ["kube-system"]

    def test_webhook_leads_to_the_operator_and_has_no_right_beyond_what_it_fills_in(self) -> None:
        values = {"settings": {"webhooks": True}, "networkPolicy": {"enabled": True}}
        secret, _ = sorted(
            self.render(values, "Secret"), key=lambda each: "signing" in each["metadata"]["name"]
        )
        env = self.render_env(values)
        ports = {each["name"] for each in self.render_container(values)["ports"]}

        assert "data" not in secret, "an upgrade must not take the certificate away"
        assert env["JMXEXPORTER_WEBHOOK_SERVICE"] == secret["metadata"]["name"]
        assert "webhook" in ports
        policy = self.render_one("NetworkPolicy", values)
        open_ports = [rule["ports"][0]["port"] for rule in policy["spec"]["ingress"]]
        assert "webhook" in open_ports
        rules = [
            rule
            for kind in ("Role", "ClusterRole")
            for role in self.render(values, kind)
            for rule in role["rules"]
            if set(rule["resources"]) & {"secrets", "mutatingwebhookconfigurations"}
        ]
        assert all(len(rule["resourceNames"]) == 1 for rule in rules)
        assert sorted(rule["verbs"] for rule in rules) == [
            ["get", "patch"],
            ["get", "update"],
            ["get", "update"],
        ]

    def test_key_has_an_empty_secret_and_a_role_for_it_alone(self) -> None:
        (secret,) = self.render({}, "Secret")
        name = secret["metadata"]["name"]
        rules = [
            rule
            for role in self.render({}, "Role")
            for rule in role["rules"]
            if "secrets" in rule["resources"]
        ]

        variables = {each["name"]: each.get("value") for each in self.render_container({})["env"]}
        assert variables["JMXEXPORTER_SIGNING_SECRET"] == name
        assert "data" not in secret, "an upgrade must not take the key away"
        assert [(rule["resourceNames"], rule["verbs"]) for rule in rules] == [
            ([name], ["get", "update"])
        ]

    def test_secret_of_the_user_is_used_and_not_created(self) -> None:
        values = {"settings": {"signingSecret": "mine"}}

        assert self.render(values, "Secret") == []
        variables = {
            each["name"]: each.get("value") for each in self.render_container(values)["env"]
        }
        assert variables["JMXEXPORTER_SIGNING_SECRET"] == "mine"

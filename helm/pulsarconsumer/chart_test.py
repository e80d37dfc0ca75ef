"""Tests of the chart of the operator pulsarconsumer."""

from typing import Any

from libs.common.testing.helm import render_notes
from operators.pulsarconsumer.app.metrics import METRICS as APP_METRICS
from operators.pulsarconsumer.controller import OPERATOR
from tests.charts import ChartSuite


class TestPulsarConsumerChart(ChartSuite):
    """The chart holds what every chart must hold."""

    operator = OPERATOR
    workload_metrics = APP_METRICS
    computed = frozenset({"PULSARCONSUMER_CONSUMER_IMAGE"})

    def test_notes_say_what_image_consumers_run(self) -> None:
        named = render_notes(self.chart, {"settings": {"consumerImage": "example.com/app:1"}})
        without = render_notes(self.chart, {"settings": None})

        assert "run the image example.com/app:1 " in named and "consumerImage=" not in named
        assert "run the image registry.example.com/slipway/pulsarconsumer-app:0.1.0 " in without
        assert "--set settings.consumerImage=" in without

    def test_consumers_run_the_image_that_a_release_publishes_next_to_the_operator(self) -> None:
        def find(values: dict[str, Any]) -> str | None:
            env = self.render_container(values)["env"]
            named = {one["name"]: one.get("value") for one in env}
            return named.get("PULSARCONSUMER_CONSUMER_IMAGE")

        mirror = {"global": {"imageRegistry": "m.io"}, "image": {"repository": "team/pulsar"}}
        loaded = {"image": {"pullPolicy": "Never"}}
        set_by_user = {"settings": {"consumerImage": "example.com/app:1"}}

        assert find(mirror) == "m.io/team/pulsar-app:0.1.0"
        assert find(set_by_user) == "example.com/app:1"
        assert find(loaded) is None, "the default of the setting is on the nodes"

    def test_consumers_have_no_user_where_the_platform_assigns_it(self) -> None:
        def find(values: dict[str, Any]) -> str | None:
            env = self.render_container(values)["env"]
            named = {one["name"]: one.get("value") for one in env}
            return named.get("PULSARCONSUMER_PLATFORM_ASSIGNS_USER_IDS")

        platform: dict[str, Any] = {"global": {"platformAssignsUserIds": True}}
        assert find({}) is None
        assert find(platform) == "true"
        assert find({**platform, "settings": {"platformAssignsUserIds": False}}) == "false"
        assert find({"settings": {"platformAssignsUserIds": True}}) == "true"

    def test_notes_warn_of_a_policy_that_keeps_brokers_away(self) -> None:
        closed: dict[str, Any] = {"networkPolicy": {"enabled": True}}
        egress = [{"ports": [{"port": 8080}]}]

        assert "admin API of your brokers" in render_notes(self.chart, closed)
        closed["networkPolicy"]["extraEgress"] = egress
        assert "admin API of your brokers" not in render_notes(self.chart, closed)
        assert "admin API of your brokers" not in render_notes(self.chart)

"""Tests of the chart of the operator jmxexporter."""

from helm.suite import ChartSuite
from operators.jmxexporter.metrics import METRICS
from operators.jmxexporter.settings import Settings


class TestJmxExporterChart(ChartSuite):
    """The chart holds what every chart must hold."""

    chart = "jmxexporter"
    settings = Settings
    metrics = METRICS
    computed = frozenset({"JMXEXPORTER_INJECTOR_IMAGE"})

    def test_injectors_are_of_the_image_of_the_operator(self) -> None:
        values = {"image": {"registry": "registry.example.com", "tag": "1.2.3"}}

        own = self.render_container(values)["image"]
        variables = {
            each["name"]: each.get("value") for each in self.render_container(values)["env"]
        }

        assert variables["JMXEXPORTER_INJECTOR_IMAGE"] == own
        assert "1.2.3" in own

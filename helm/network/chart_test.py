"""Tests of the chart of the operator network."""

from operators.network.controller import OPERATOR
from tests.charts import ChartSuite


class TestNetworkChart(ChartSuite):
    """The chart holds what every chart must hold."""

    operator = OPERATOR

    def test_operator_is_told_the_addresses_of_its_pod(self) -> None:
        env = {one["name"]: one for one in self.render_container({})["env"]}
        chosen = self.render_container({"settings": {"ipFamilies": ["IPv4", "IPv6"]}})["env"]

        assert env["POD_IPS"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIPs"}}
        assert {"name": "NETWORK_IP_FAMILIES", "value": "IPv4,IPv6"} in chosen

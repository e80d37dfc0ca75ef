"""Prometheus and Grafana in the cluster of a demo, with the alerts and dashboards of the charts."""

"""What the jmxexporter operator may do, in each namespace that it watches."""

from libs.common.kinds import CONFIG_MAP, ENDPOINT_SLICE, POD, SERVICE
from libs.common.rbac import PolicyRule, children, grant, own, reads
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.discovery import POD_MONITOR, SERVICE_MONITOR

_KEEP = ("create", "patch", "delete")

RULES: tuple[PolicyRule, ...] = (
    *own(PROMETHEUS_JMX_EXPORTER),
    *reads(POD, why="find the pods with JVMs, and read the reports of injectors"),
    grant(POD, "patch", why="annotate pods for Prometheus"),
    grant(POD, "patch", subresource="ephemeralcontainers", why="add injectors to pods with JVMs"),
    *reads(CONFIG_MAP, why="read configurations of the exporter"),
    *children(SERVICE, *_KEEP, why="manage the Service of spec.service"),
    *children(ENDPOINT_SLICE, *_KEEP, why="manage the Service of spec.service"),
    *children(SERVICE_MONITOR, *_KEEP, why="manage the ServiceMonitor of spec.service.monitor"),
    *children(POD_MONITOR, *_KEEP, why="manage the PodMonitor of spec.podMonitor"),
)
"""Rules of the operator itself; the generator adds the rules of the framework."""

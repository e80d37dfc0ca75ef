"""The jmxexporter operator: takes Prometheus metrics out of running JVMs without a restart."""

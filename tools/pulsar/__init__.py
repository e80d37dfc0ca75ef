"""A real Pulsar broker from Maven artefacts: fetched once, for tests, the demo and local work."""

from tools.pulsar.fetch import ensure_pulsar

__all__ = ["ensure_pulsar"]

"""Tests of the engine KEDA with a real KEDA and a real Pulsar broker."""

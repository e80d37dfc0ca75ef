"""Test kit: fake API server, real API server, harness and conformance suite."""

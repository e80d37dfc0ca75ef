"""Test servers: a real Pulsar broker as a local process, with and without authentication."""

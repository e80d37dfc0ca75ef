"""Runs consumers of a Pulsar topic: operator and consumer app."""

"""Manifests of the children of a PulsarConsumer."""

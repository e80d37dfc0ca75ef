"""Client of Pulsar's admin REST API, and queries through it.

It works without Kubernetes: `PulsarAdmin` needs only an address and a `Login`.
"""

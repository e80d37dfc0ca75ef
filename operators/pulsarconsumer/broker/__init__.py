"""The broker from outside: a thin client of Pulsar's admin REST API, and what it can be asked.

Usable without Kubernetes: `PulsarAdmin` takes an address and a `Login`.
"""

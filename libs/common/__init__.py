"""Runtime, API client, CRDs and test kit for Kubernetes operators."""

"""A simulator of KubeVirt and CDI that speaks the Kubernetes API; see README.md for its limits."""

"""Namespaces that cannot be read or are being deleted, on a real kube-apiserver."""

"""Operator of KubernetesCluster: clusters whose nodes are virtual machines."""

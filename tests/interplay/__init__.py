"""Tests of operators that work together, which know each other by the Kubernetes API alone."""

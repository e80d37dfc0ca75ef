"""Tests on nodes that run every night and not in the gate, because they take long."""

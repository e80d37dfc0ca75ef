"""Workloads and invariants: one file for each operator."""

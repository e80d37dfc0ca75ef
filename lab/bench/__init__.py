"""Benchmarks with peers: each figure and its peer are measured in one run, on one machine."""

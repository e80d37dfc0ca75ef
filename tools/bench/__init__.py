"""Benchmarks beside peers: each figure is measured with its peer in one run, on one machine."""

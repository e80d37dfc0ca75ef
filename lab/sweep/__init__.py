"""Fault sweeps: inject a fault at each write and watch event of an operator, one per trial."""

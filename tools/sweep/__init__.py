"""Fault sweeps: every write and every watch event of an operator is made to go wrong, once each."""

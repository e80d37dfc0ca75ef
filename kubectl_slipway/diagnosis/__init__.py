"""Derive from facts why an object is not ready. Pure functions."""

"""Shared libraries of the operators."""

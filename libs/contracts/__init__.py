"""Typed, tolerant, read-only views of kinds that other operators and other projects own.

Operators that read each other's objects share these views and never import each other. Parsing
does not fail on unknown fields or values.
"""

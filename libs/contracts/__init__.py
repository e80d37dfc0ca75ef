"""Typed, tolerant views of kinds that other operators and other projects own.

Operators that read each other's objects share these views, and never import each other. The views
do not fail on fields and values that they do not know.
"""

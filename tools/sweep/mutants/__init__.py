"""Mutants: changes of our own code that bring real, published bugs back."""

MUTANTS: dict = {}

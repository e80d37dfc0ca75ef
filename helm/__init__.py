"""Charts of the operators, and the tests that all of them pass."""

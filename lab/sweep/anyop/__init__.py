"""The fault sweep of an operator of others, which a command starts."""

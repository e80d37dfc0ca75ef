"""The operators: each is installed on its own and imports none of the others."""

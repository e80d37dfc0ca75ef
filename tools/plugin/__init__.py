"""`python -m tools.plugin`: the kubectl plugin as one file, and its manifest for krew."""

"""The command line of the repository: everything that ./dev does."""

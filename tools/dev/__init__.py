"""The command line of the repository, `./dev`."""

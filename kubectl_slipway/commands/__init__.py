"""The commands: each module has a function `run` that takes options and returns an exit code."""

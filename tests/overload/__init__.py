"""Operators that get very little CPU time, next to a controller in Go."""

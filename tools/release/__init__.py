"""Releases: an operator at a version, as image and chart that name each other."""

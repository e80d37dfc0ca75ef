"""Tests that need more than one part of the repository."""

"""Fixtures that every test may use."""

pytest_plugins = ["libs.common.testing.fixtures"]

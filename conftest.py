"""Fixtures that every test may use."""

import os
import signal

import pytest
from hypothesis import settings

# A shell ignores it for what it runs in the background, and processes of tests inherit that. A JVM
# that ignores it cannot be attached to.
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

pytest_plugins = ["libs.common.testing.fixtures"]

# The same examples in each run, so that the gate says the same of the same code. To look for new
# ones, run with HYPOTHESIS_PROFILE=default.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a real API server by the fixture that they use."""
    for item in items:
        if "kube_apiserver" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.apiserver)

"""Fixtures that every test may use."""

import os

from hypothesis import settings

pytest_plugins = ["libs.common.testing.fixtures"]

# The same examples in each run, so that the gate says the same of the same code. To look for new
# ones, run with HYPOTHESIS_PROFILE=default.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

"""Tests of the library chart, value by value, on the smallest chart that is made of it."""

from helm.suite import LibrarySuite
from operators.podset.settings import Settings


class TestLibraryChart(LibrarySuite):
    """Each value does what its comment says, or is refused."""

    chart = "podset"
    settings = Settings

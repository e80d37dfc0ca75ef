"""Tests of the library chart, value by value, on the smallest chart that is made of it."""

from operators.podset.controller import OPERATOR
from tests.charts import LibrarySuite


class TestLibraryChart(LibrarySuite):
    """Each value does what its comment says, or is refused."""

    operator = OPERATOR

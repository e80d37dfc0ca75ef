"""Version of the library; the versions of operators are their own."""

__version__ = "0.1.0"

"""Images of operators: a base from Debian packages, the packages of the lockfile, the code."""

from tools.images.build import build, ensure_base, push

__all__ = ["build", "ensure_base", "push"]

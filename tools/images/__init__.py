"""Images of operators: a base from Debian packages, the packages of the lockfile, the code."""

from tools.images.build import (
    build,
    build_together,
    check_needs,
    ensure_base,
    list_all_images,
    list_images,
    push,
)

__all__ = [
    "build",
    "build_together",
    "check_needs",
    "ensure_base",
    "list_all_images",
    "list_images",
    "push",
]

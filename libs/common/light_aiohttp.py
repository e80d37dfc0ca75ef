"""Import of aiohttp without the certificate authorities of the system.

aiohttp builds two TLS contexts when it is imported, and loads the authorities of the system (about
150) into each. They take memory and start-up time, and most processes never use them: connections
to the API server have a context with the authority of the cluster. So these two contexts load the
authorities when they are used for the first time.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def import_aiohttp() -> None:
    """Import aiohttp, unless it is imported already."""
    if "aiohttp" not in sys.modules:
        with _authorities_postponed():
            import aiohttp  # noqa: F401  # imported for the process, not for this module


class _Postponed(ssl.SSLContext):
    """A TLS context that loads the authorities of the system when it is used for the first time."""

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return _load(self).wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        return _load(self).wrap_socket(*args, **options)


def _load(context: ssl.SSLContext) -> ssl.SSLContext:
    # In this order: another thread must not use the context before the authorities are loaded.
    context.load_default_certs()
    context.__class__ = ssl.SSLContext
    return context


def _postpone(context: ssl.SSLContext, *_: object) -> None:
    # The context keeps its options. A new object would not have the options that follow.
    context.__class__ = _Postponed


@contextmanager
def _authorities_postponed() -> Iterator[None]:
    """Let contexts that are built meanwhile load the authorities of the system later."""
    names = ("load_default_certs", "set_default_verify_paths")
    own = {name: vars(ssl.SSLContext).get(name) for name in names}
    for name in names:
        setattr(ssl.SSLContext, name, _postpone)
    try:
        yield
    finally:
        for name, method in own.items():
            if method is None:  # Inherited.
                delattr(ssl.SSLContext, name)
            else:
                setattr(ssl.SSLContext, name, method)

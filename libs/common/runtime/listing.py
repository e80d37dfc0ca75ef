"""Listing: from the API server into the store of an informer, page by page."""

from __future__ import annotations

from collections.abc import Iterable

from libs.common.client import Client
from libs.common.kinds import Kind, Manifest, parse_version
from libs.common.runtime.informer import Informer


class StorageRolledBack(Exception):
    """The storage of the API server was restored to an earlier state.

    A store orders changes by version, so it would ignore all events until versions are as high as
    before. Only a restarted process sees the current state.
    """


class InformerListing:
    """A listing of one scope that an informer processes page by page."""

    def __init__(self, informer: Informer, namespace: str) -> None:
        """Initialize; called by `list_scope`."""
        self._informer = informer
        self._namespace = namespace
        self._listing = informer.store.begin_listing(namespace or None)
        self._newest = informer.store.newest

    def restart(self) -> None:
        """Forget the listed objects, because the listing begins again."""
        self._listing.restart()

    def take(self, items: Iterable[Manifest]) -> None:
        """Process the objects of a page."""
        if self._informer.scope_of(self._namespace) is None:
            # The namespace was deselected, and its objects were removed from the store. The
            # listing is cancelled a moment later; until then it must not restore them.
            return
        self._informer.mark_alive(self._namespace)
        self._informer.notify(self._listing.take(items))

    def finish(self, version: int) -> None:
        """Remove objects that were on no page, and mark the scope as synced.

        Raises:
            StorageRolledBack: The listing is older than the newest version seen before it began.
        """
        check_version(self._informer.kind, version, self._newest)
        self._informer.notify(self._listing.finish(version))
        self._informer.mark_synced(self._namespace)


def check_version(kind: Kind, version: int, newest: int) -> None:
    """Compare the version of a listing with the newest version seen before it began.

    Raises:
        StorageRolledBack: The listing is older.
    """
    if 0 < version < newest:
        raise StorageRolledBack(
            f"{kind.resource}: the API server is at version {version}, but {newest} was seen; its "
            "storage was restored to an earlier state, so the caches must be filled again"
        )


async def list_scope(client: Client, informer: Informer, namespace: str) -> str:
    """List one scope of an informer into its store, and mark the scope as synced.

    Each page is reduced before the next one is requested, so a listing needs little more memory
    than the reduced objects.

    Returns:
        The version from which to watch.

    Raises:
        StorageRolledBack: The listing is older than the newest version seen before.
    """
    listing = InformerListing(informer, namespace)
    version = ""
    async for page in client.pages(
        informer.kind,
        namespace,
        label_selector=informer.label_selector,
        field_selector=informer.field_selector,
    ):
        if page.first:
            listing.restart()
        listing.take(page.items)
        version = page.resource_version
    number = parse_version(version)
    if version and not number:
        informer.note_opaque_versions()
    listing.finish(number)
    return version

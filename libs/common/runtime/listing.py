"""Listing: from the API server into the store of an informer, page by page."""

from __future__ import annotations

from collections.abc import Iterable

from libs.common.client import Client
from libs.common.kinds import Kind, Manifest
from libs.common.runtime.informer import Informer


class StorageRolledBack(Exception):
    """The storage of the API server was restored to an earlier state.

    Versions order what a store takes in, so it would ignore all events until they are as high as
    they were. Only a process that begins again sees the present state.
    """


class InformerListing:
    """A listing of one scope that an informer takes in page by page, and tells its handlers of."""

    def __init__(self, informer: Informer, namespace: str) -> None:
        """Begin; `list_scope` does."""
        self._informer = informer
        self._namespace = namespace
        self._listing = informer.store.begin_listing(namespace or None)
        self._newest = informer.store.newest

    def restart(self) -> None:
        """Forget which objects were listed, since the listing begins again."""
        self._listing.restart()

    def take(self, items: Iterable[Manifest]) -> None:
        """Take in the objects of a page."""
        self._informer.heard(self._namespace)
        self._informer.tell(self._listing.take(items))

    def finish(self, version: int) -> None:
        """Take out what no page had, and mark the scope synced.

        Raises:
            StorageRolledBack: The listing is older than what was seen before it began.
        """
        check_version(self._informer.kind, version, self._newest)
        self._informer.tell(self._listing.finish(version))
        self._informer.mark_synced(self._namespace)


def check_version(kind: Kind, version: int, newest: int) -> None:
    """Compare the version of a listing with the newest one that was seen before it began.

    Raises:
        StorageRolledBack: It is older.
    """
    if 0 < version < newest:
        raise StorageRolledBack(
            f"{kind.resource}: the API server is at version {version}, but {newest} was seen; its "
            "storage was restored to an earlier state, so the caches must be filled again"
        )


async def list_scope(client: Client, informer: Informer, namespace: str) -> str:
    """List one scope of an informer into its store, and mark it synced.

    Each page is reduced to what the store keeps before the next one is asked for, so a listing of
    any size needs little more memory than what is kept of it.

    Returns:
        The version to watch from.

    Raises:
        StorageRolledBack: The listing is older than what was seen before.
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
    listing.finish(int(version or 0))
    return version

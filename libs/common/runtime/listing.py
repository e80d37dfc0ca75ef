"""Listing: from the API server into the store of an informer, page by page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from libs.common.client import Client
from libs.common.kinds import Kind, Manifest, key_of, parse_version, uid_of, version_text
from libs.common.runtime.informer import Informer
from libs.common.runtime.store import Store


class StorageRolledBack(Exception):
    """The storage of the API server was restored to an earlier state.

    A store orders changes by version, so it would ignore all events until versions are as high as
    before. Only a restarted process sees the current state.
    """

    def __init__(self, kind: Kind, found: str, seen: object) -> None:
        """Describe what was found, and what was seen before: a later version, or a deletion."""
        super().__init__(
            f"{kind.resource}: {found}, but {seen} was seen; the storage of the API server was "
            "restored to an earlier state, so the caches must be filled again"
        )


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

    def take(self, items: Iterable[Manifest], version: int) -> None:
        """Process the objects of a page of a listing with a version; see `check_object`."""
        if self._informer.scope_of(self._namespace) is None:
            # The namespace was deselected, and its objects were removed from the store. The
            # listing is cancelled a moment later; until then it must not restore them.
            return
        self._informer.mark_alive(self._namespace)
        items = list(items)
        for item in items:
            check_object(self._informer.store, item, version)
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
        raise StorageRolledBack(kind, f"the API server is at version {version}", newest)


def check_object(store: Store, listed: Manifest, version: int) -> None:
    """Compare a listed object with the store, which may know a later history of it.

    A listing contains all changes up to its version. So an object cannot be older than a change
    that was seen before this version, except if that change was undone by a restore.

    Raises:
        StorageRolledBack: The object is older.
    """
    seen = store.last_seen(key_of(listed), uid_of(listed))
    if 0 < parse_version(version_text(listed)) < seen <= version:
        where = f"{key_of(listed)} is at version {version_text(listed)}"
        raise StorageRolledBack(store.kind, where, seen)


async def check_storage(client: Client, informer: Informer, namespace: str) -> None:
    """Ask the API server for its version, before a watch is resumed after a failure.

    A watch from a version that the server has not reached yet is accepted and stays silent.

    Raises:
        StorageRolledBack: The version is older than the newest version seen.
    """
    newest = informer.store.newest
    pages = client.pages(informer.kind, namespace, metadata_only=True, page=1)
    async with contextlib.aclosing(pages):
        async for page in pages:
            check_version(informer.kind, parse_version(page.resource_version), newest)
            return


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
    version, number = "", 0
    async for page in client.pages(
        informer.kind,
        namespace,
        label_selector=informer.label_selector,
        field_selector=informer.field_selector,
        metadata_only=informer.metadata_only,
    ):
        if page.first:
            listing.restart()
        version = page.resource_version
        number = parse_version(version)
        listing.take(page.items, number)
    if version and not number:
        informer.note_opaque_versions()
    listing.finish(number)
    return version

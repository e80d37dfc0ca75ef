"""The base of all images: CPython 3.13 from Debian packages and nothing that runs a command.

No shell, no package manager, no perl: what is kept of the packages is listed here, the rest is
left out. The same packages give the same bytes.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.cluster import debian
from tools.cluster.cache import Cache, digest_of
from tools.cluster.errors import ToolError
from tools.cluster.image_archive import Entry, write_archive
from tools.cluster.progress import Progress
from tools.images import packages as records

SUITE: Final = "trixie"
"""The Debian release that has Python 3.13."""
PACKAGES: Final = (
    "ca-certificates",
    "libpython3.13-stdlib",
    "libstdc++6",  # Of the Pulsar client; 2 MB that all images share.
    "python3.13-minimal",
    "tzdata",
)
"""Packages named; the libraries they need come with them."""
LOCK: Final = Path(__file__).with_name("base.lock")
"""Versions of the packages when the base was last updated, see tools.images.update."""
NAME: Final = "slipway/base"
BASE_VARIABLE: Final = "SLIPWAY_BASE_IMAGE"
"""Names another base image; it must have /usr/bin/python3.13."""
USER: Final = 65532
"""User and group of all processes; the number that distroless images use as well."""

_BUILDERS: Final = ("mmdebstrap", "debian-archive-keyring")
"""Packages of the machine that puts a root together."""
_KEPT: Final = (
    "etc/protocols",
    "etc/services",
    "usr/bin/python3.13",
    "usr/lib/*-linux-gnu/*.so*",
    "usr/lib/ld-linux*",
    "usr/lib/python3.13/*",
    "usr/lib64/*",
    "usr/share/doc/*/copyright",
    "usr/share/zoneinfo/*",
)
_DROPPED: Final = (
    # Windows, tests and tools of the standard library that no operator imports.
    "usr/lib/python3.13/ensurepip/*",
    "usr/lib/python3.13/lib2to3/*",
    "usr/lib/python3.13/sitecustomize.py",
    "usr/lib/*-linux-gnu/libperl*",
)
_CERTIFICATES: Final = "usr/share/ca-certificates/*.crt"
_BUNDLE: Final = "/etc/ssl/certs/ca-certificates.crt"
_OS_RELEASE: Final = f'ID=debian\nVERSION_CODENAME={SUITE}\nPRETTY_NAME="Debian {SUITE}, Python"\n'
_LINKS: Final = {
    # OpenSSL looks here when nobody says where else.
    "/usr/lib/ssl/cert.pem": _BUNDLE,
    # The loader of programs is looked up by these names on amd64 and arm64.
    "/lib": "usr/lib",
    "/lib64": "usr/lib64",
}
_FILES: Final = {
    "/etc/passwd": f"root:x:0:0::/:/nologin\nnonroot:x:{USER}:{USER}::/tmp:/nologin\n",
    "/etc/group": f"root:x:0:\nnonroot:x:{USER}:\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
    "/etc/os-release": _OS_RELEASE,
}


def base_key() -> str:
    """Return the key of the base in the cache: how it is made and when it was last updated."""
    return f"py313-{digest_of(Path(__file__), Path(records.__file__), LOCK)}"


def build_archive(cache: Cache, progress: Progress) -> Path:
    """Return the archive of the base, built when it is missing.

    Raises:
        ToolError: The packages cannot be had.
    """

    def build(directory: Path) -> None:
        with progress.step("Base image from Debian packages", "20 seconds, once"):
            root = directory / "root.tar"
            extract_packages(root, PACKAGES, progress, record=True)
            _write(directory, root)
            root.unlink()

    return cache.ensure("base-image", base_key(), build) / "base.tar"


def store_archive(cache: Cache, root: Path) -> None:
    """Keep the archive of the base, made from a root of mmdebstrap."""
    cache.ensure("base-image", base_key(), lambda directory: _write(directory, root))


def _write(directory: Path, root: Path) -> None:
    tags = [f"{NAME}:py313-{{digest}}", f"{NAME}:py313"]
    write_archive(directory / "base.tar", read_entries(root), tags)


def check_builders(cache: Cache) -> None:
    """Check, before anything takes long, that the base is there or can be made here.

    Raises:
        ToolError: It cannot; the message says what is missing.
    """
    if cache.find("base-image", base_key()) is not None:
        return
    try:
        debian.check_packages(_BUILDERS)
    except ToolError as err:
        raise ToolError(
            f"The base image cannot be made here: {err}; or name another one by {BASE_VARIABLE},"
            " which has /usr/bin/python3.13"
        ) from err


def read_entries(root: Path) -> Iterator[Entry]:
    """Yield what the image holds of a root of mmdebstrap, and what Debian adds on set-up."""
    certificates: list[bytes] = []
    found: dict[str, bytes] = {}
    with tarfile.open(root) as archive:
        for member in archive:
            name = member.name.removeprefix("./").strip("/")
            if member.isfile() and fnmatch.fnmatch(name, _CERTIFICATES):
                certificates.append(_read(archive, member))
            elif member.isfile() and name.startswith(f"{records.FOLDER}/"):
                found[name.rpartition("/")[2]] = _read(archive, member)
            elif is_kept(name):
                yield from convert_member(archive, member, name)
    yield Entry(_BUNDLE, b"".join(sorted(certificates)), mode=0o644)
    for package, record in records.select_records(found, _is_used):
        yield Entry(f"/{records.FOLDER}/{package}", record, mode=0o644)
    yield Entry("/tmp", mode=0o1777)
    for path, target in _LINKS.items():
        yield Entry(path, link=target)
    for path, text in _FILES.items():
        yield Entry(path, text.encode(), mode=0o644)


def is_kept(name: str) -> bool:
    """Return whether a path of the packages belongs in the image."""
    kept = any(fnmatch.fnmatchcase(name, pattern) for pattern in _KEPT)
    return kept and not any(fnmatch.fnmatchcase(name, pattern) for pattern in _DROPPED)


def _is_used(name: str) -> bool:
    return is_kept(name) or fnmatch.fnmatch(name, _CERTIFICATES)


def convert_member(archive: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> Iterator[Entry]:
    """Yield a file or link of a root of mmdebstrap as an entry of an image; directories follow."""
    if member.issym():
        yield Entry(f"/{name}", link=member.linkname)
    elif member.isfile() or member.islnk():
        yield Entry(f"/{name}", _read(archive, member), mode=stat.S_IMODE(member.mode))


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def extract_packages(
    output: Path, packages: Sequence[str], progress: Progress, *, record: bool = False
) -> None:
    """Write a root with packages and their dependencies, not configured, as a tar archive.

    Args:
        output: The archive.
        packages: Names of the packages.
        progress: Where the output of mmdebstrap goes.
        record: Whether the archive contains the records of the packages, see tools.images.packages.

    Raises:
        ToolError: The packages cannot be had.
    """
    debian.install_packages(_BUILDERS, progress)
    mode = "root" if os.geteuid() == 0 else "unshare"
    command = ["mmdebstrap", f"--mode={mode}", "--variant=extract", "--format=tar"]
    if record:
        command.append(f"--extract-hook={records.RECORD}")
    command += [f"--include={','.join(packages)}", SUITE, str(output)]
    progress.run([*command, *debian.list_sources(SUITE, security=True)])

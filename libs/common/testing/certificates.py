"""Certificates of an authority of our own, for servers and clients in tests."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# Elliptic curves, since keys of RSA take seconds to find on a busy machine.
_EC: Final = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
_RSA: Final = "-newkey rsa:2048 -nodes"


def create_certificates(
    folder: Path,
    names: Sequence[str] = ("localhost",),
    clients: Sequence[str] = (),
    *,
    rsa: bool = False,
) -> Path:
    """Write `ca.crt`, and `tls.crt` and `tls.key` of a server that it signed, into a folder.

    Args:
        folder: Folder for the files; it is returned.
        names: Names of the server.
        clients: Names of clients; for `a` there are `a.crt` and `a.key`.
        rsa: Whether the server has a key of RSA, for servers that read no other.
    """
    alternatives = ",".join(f"DNS:{name}" for name in names)
    (folder / "names.ext").write_text(f"subjectAltName={alternatives}\n")
    _run(
        folder,
        f"req {_EC} -x509 -keyout ca.key -out ca.crt -days 2 -subj /CN=test-ca",
    )
    _sign(folder, "tls", names[0], "-extfile names.ext", key=_RSA if rsa else _EC)
    for name in clients:
        _sign(folder, name, name, "", key=_EC)
    return folder


def _sign(folder: Path, file: str, name: str, extensions: str, *, key: str) -> None:
    _run(folder, f"req {key} -keyout {file}.key -out {file}.csr -subj /CN={name}")
    authority = "-CA ca.crt -CAkey ca.key -CAcreateserial -days 2"
    _run(folder, f"x509 -req -in {file}.csr {authority} {extensions} -out {file}.crt")


def _run(folder: Path, words: str) -> None:
    subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)

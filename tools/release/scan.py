"""Look for known vulnerabilities in a bill of materials, without a network."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from libs.common.kinds import Manifest
from tools.cluster.errors import CommandFailed, ToolError
from tools.cluster.progress import Progress

_SCANNER: Final = "trivy"
_SEVERITIES: Final = "HIGH,CRITICAL"


def scan_bills(bills: Mapping[str, Manifest], database: Path, progress: Progress) -> None:
    """Scan bills of materials, given by file name, before charts are pushed or files published.

    Raises:
        ToolError: As `scan_bill` raises.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, bill in bills.items():
            path = Path(folder) / name
            path.write_text(json.dumps(bill))
            scan_bill(path, database, progress)


def scan_bill(bill: Path, database: Path, progress: Progress) -> None:
    """Scan a bill of materials against a local database of the scanner.

    `trivy image --download-db-only --cache-dir DIRECTORY` fills such a directory.

    Raises:
        ToolError: The scanner is missing, or there is a vulnerability that a newer package fixes.
    """
    scanner = shutil.which(_SCANNER)
    if scanner is None:
        raise ToolError(f"{_SCANNER} is not on PATH: install it, or release without a database")
    if not (database / "db").is_dir():
        raise ToolError(f"{database} is no cache directory of {_SCANNER}: it has no folder db")
    offline = ("--offline-scan", "--skip-db-update", "--skip-java-db-update")
    command = [scanner, "sbom", *offline, "--cache-dir", str(database)]
    command += ["--severity", _SEVERITIES, "--ignore-unfixed", "--exit-code", "1", str(bill)]
    with progress.step(f"Vulnerabilities in {bill.name}"):
        try:
            progress.run(command)
        except CommandFailed as err:
            raise ToolError(
                f"{bill.name} has vulnerabilities that newer packages fix: update"
                f" 3rdparty/python or rebuild the base image\n{err.output.strip()}"
            ) from err

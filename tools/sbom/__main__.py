"""Write a bill of materials: `python -m tools.sbom podset > podset.cdx.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from tools.sbom.document import build_document


def main(argv: Sequence[str] | None = None) -> int:
    """Print the bill of one operator as CycloneDX JSON."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    print(json.dumps(build_document(arguments[0]), indent=2, sort_keys=True))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

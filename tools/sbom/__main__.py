"""Write a bill of materials: `python -m tools.sbom podset > podset.cdx.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from tools.cluster.command_line import run
from tools.cluster.progress import open_progress
from tools.sbom.contents import list_contents
from tools.sbom.document import build_document


def main(argv: Sequence[str] | None = None) -> int:
    """Print the bill of one image as CycloneDX JSON."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    image = arguments[0]
    contents = list_contents(image, open_progress(f"sbom-{image}"))
    print(json.dumps(build_document(image, contents), indent=2, sort_keys=True))
    return 0


if __name__ == "__main__":
    raise SystemExit(run(main))

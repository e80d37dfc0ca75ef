"""Entry point: `python -m kubectl_slipway`, the script of the wheel and the single file."""

from __future__ import annotations

import sys

from kubectl_slipway.cli import main

if __name__ == "__main__":
    sys.exit(main())

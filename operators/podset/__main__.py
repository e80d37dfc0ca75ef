"""Run the podset operator: `python -m operators.podset`."""

from __future__ import annotations

from libs.common.runtime import main
from operators.podset.controller import OPERATOR

if __name__ == "__main__":
    raise SystemExit(main(OPERATOR))

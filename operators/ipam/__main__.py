"""Run the ipam operator: `python -m operators.ipam`."""

from libs.common.runtime import main
from operators.ipam.controller import OPERATOR

if __name__ == "__main__":
    raise SystemExit(main(OPERATOR))

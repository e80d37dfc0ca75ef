"""Run the compute operator: `python -m operators.compute`."""

from libs.common.runtime import main
from operators.compute.controller import OPERATOR

if __name__ == "__main__":
    raise SystemExit(main(OPERATOR))

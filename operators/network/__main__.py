"""Run the network operator: `python -m operators.network`."""

from libs.common.runtime import main
from operators.network.controller import OPERATOR

if __name__ == "__main__":
    raise SystemExit(main(OPERATOR))

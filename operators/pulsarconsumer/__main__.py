"""Run the pulsarconsumer operator: `python -m operators.pulsarconsumer`."""

from libs.common.runtime import main
from operators.pulsarconsumer.controller import OPERATOR

if __name__ == "__main__":
    raise SystemExit(main(OPERATOR))

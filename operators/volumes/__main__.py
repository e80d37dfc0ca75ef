"""Run the volumes operator: `python -m operators.volumes`."""

from libs.common.runtime import main
from operators.volumes.controller import OPERATOR

if __name__ == "__main__":
    raise SystemExit(main(OPERATOR))

"""Run the clusters operator: `python -m operators.clusters`."""

from libs.common.runtime import main
from operators.clusters.controller import OPERATOR

if __name__ == "__main__":
    raise SystemExit(main(OPERATOR))

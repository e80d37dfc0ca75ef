"""Run the jmxexporter operator: `python -m operators.jmxexporter`."""

from libs.common.runtime import main
from operators.jmxexporter.controller import OPERATOR

if __name__ == "__main__":
    raise SystemExit(main(OPERATOR))

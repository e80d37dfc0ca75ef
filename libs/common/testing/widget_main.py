"""The widget operator as a process: `python -m libs.common.testing.widget_main`."""

from libs.common.runtime import main
from libs.common.testing.widget import OPERATOR

if __name__ == "__main__":
    raise SystemExit(main(OPERATOR))

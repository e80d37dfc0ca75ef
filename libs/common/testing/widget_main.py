"""The widget operator as a process: `python -m libs.common.testing.widget_main`."""

from libs.common import startup


def main() -> int:
    """Import the operator, and run it."""
    from libs.common.runtime import main as run_operator
    from libs.common.testing.widget import OPERATOR

    return run_operator(OPERATOR)


if __name__ == "__main__":
    startup.run(main)

"""Run the pulsarconsumer operator: `python -m operators.pulsarconsumer`."""

from libs.common import startup


def main() -> int:
    """Import the operator, and run it."""
    from libs.common.runtime import main as run_operator
    from operators.pulsarconsumer.controller import OPERATOR

    return run_operator(OPERATOR)


if __name__ == "__main__":
    startup.run(main)

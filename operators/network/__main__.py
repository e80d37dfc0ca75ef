"""Run the network operator: `python -m operators.network`."""

from libs.common import startup


def main() -> int:
    """Import the operator, and run it."""
    from libs.common.runtime import main as run_operator
    from operators.network.controller import OPERATOR

    return run_operator(OPERATOR)


if __name__ == "__main__":
    startup.run(main)

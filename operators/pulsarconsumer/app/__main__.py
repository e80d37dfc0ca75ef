"""Run the consumer app: `python -m operators.pulsarconsumer.app`."""

from libs.common import startup


def main() -> int:
    """Import the app, and run it."""
    from operators.pulsarconsumer.app.run import main as run_app
    from operators.pulsarconsumer.app.run import run_to_end

    run_to_end(run_app)


if __name__ == "__main__":
    startup.run(main)

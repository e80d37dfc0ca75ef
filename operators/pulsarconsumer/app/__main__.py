"""Run the consumer app: `python -m operators.pulsarconsumer.app`."""

from libs.common import startup


def main() -> int:
    """Import the app, and run it."""
    from operators.pulsarconsumer.app.run import end
    from operators.pulsarconsumer.app.run import main as run_app

    end(run_app())


if __name__ == "__main__":
    startup.run(main)

"""Run the consumer app: `python -m operators.pulsarconsumer.app`."""

from operators.pulsarconsumer.app.run import end, main

if __name__ == "__main__":
    end(main())

"""Print where the jars and runtimes are, made when they are missing: `python -m tools.jvm`."""

from tools.jvm.kit import ensure_kit

if __name__ == "__main__":
    print(ensure_kit())

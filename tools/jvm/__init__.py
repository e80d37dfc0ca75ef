"""What is loaded into JVMs, built from Java, and runtimes to try it on."""

from tools.jvm.kit import KIT_VARIABLE, ensure_kit

__all__ = ["KIT_VARIABLE", "ensure_kit"]

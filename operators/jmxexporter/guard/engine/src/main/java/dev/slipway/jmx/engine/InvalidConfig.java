package dev.slipway.jmx.engine;

/** A configuration that cannot be used; the message says why. */
final class InvalidConfig extends Exception {
  private static final long serialVersionUID = 1L;

  InvalidConfig(String message) {
    super(message);
  }
}

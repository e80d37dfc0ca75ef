package dev.slipway.jmx.guard;

/** A request that cannot be met, with a reason for machines and a sentence for people. */
final class Refusal extends Exception {
  private static final long serialVersionUID = 1L;
  private final String reason;

  Refusal(String reason, String message) {
    super(message);
    this.reason = reason;
  }

  String reason() {
    return reason;
  }
}

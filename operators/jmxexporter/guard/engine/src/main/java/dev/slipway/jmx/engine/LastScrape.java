package dev.slipway.jmx.engine;

/** The result of a scrape, as the operator asks for it. */
final class LastScrape {
  final int status;
  /** Why the scrape failed or is incomplete; empty if it is complete. */
  final String error;

  private final long millis;
  private final int bytes;

  LastScrape(int status, String error, long startNanos, int bytes) {
    this.status = status;
    this.error = error;
    this.millis = (System.nanoTime() - startNanos) / 1_000_000;
    this.bytes = bytes;
  }

  /** Returns the lines; without the cause, which may name beans, if the metrics need a login. */
  String describe(boolean closed) {
    String shown = closed && !error.isEmpty() ? "the cause is shown to clients with a login" : error;
    return "lastScrapeStatus=" + status + "\nlastScrapeError=" + shown + "\nlastScrapeMillis=" + millis
        + "\nlastScrapeBytes=" + bytes + "\n";
  }
}

package dev.slipway.jmx.engine;

/** The result of a scrape, as the operator asks for it. */
final class LastScrape {
  final int status;
  /** Why the scrape failed or is incomplete; empty if it is complete. */
  final String error;

  private final long millis;
  private final int bytes;
  /** Number of metrics that the rules made; -1 if that is not known. */
  final int families;

  LastScrape(int status, String error, long startNanos, int bytes, int families) {
    this.status = status;
    this.error = error;
    this.millis = (System.nanoTime() - startNanos) / 1_000_000;
    this.bytes = bytes;
    this.families = families;
  }

  /** Returns the lines; without the cause, which may name beans, if the metrics need a login. */
  String describe(boolean closed) {
    String shown = closed && !error.isEmpty() ? "the cause is shown to clients with a login" : error;
    return "lastScrapeStatus=" + status + "\nlastScrapeError=" + shown + "\nlastScrapeMillis=" + millis
        + "\nlastScrapeBytes=" + bytes + "\nlastScrapeFamilies=" + families + "\n";
  }
}

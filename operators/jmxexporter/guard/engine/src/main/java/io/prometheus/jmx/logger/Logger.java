package io.prometheus.jmx.logger;

/**
 * Replaces the logger of the collector: keeps why a scrape failed, and prints nothing.
 *
 * <p>The collector's own puts its formatter into the handlers of the application's root logger, which changes the log
 * of the application, and repeats each failing bean at each scrape.
 */
public final class Logger {
  private static final int LIMIT = 500;
  private static final ThreadLocal<Object[]> PLACE = new ThreadLocal<>();
  private static final ThreadLocal<String> ERROR = new ThreadLocal<>();

  Logger() {}

  /** Returns why the last scrape of the calling thread failed, and forgets it. */
  public static String takeError() {
    String error = ERROR.get();
    ERROR.remove();
    PLACE.remove();
    return error == null ? "" : error;
  }

  /** Says whether details are wanted in addition. */
  public boolean isTraceEnabled() {
    return false;
  }

  /** Drops a message. */
  public void trace(String message) {}

  /** Drops a message. */
  public void trace(String format, Object object) {}

  /** Keeps which attribute is read, and drops everything else. */
  public void trace(String format, Object... objects) {
    if (format.equals("%s_%s process")) {
      PLACE.set(objects);
    }
  }

  /** Drops a message. */
  public void warn(String format, Object... objects) {}

  /** Keeps the error. */
  public void error(String format, Object... objects) {
    String cause = "";
    for (String line : String.valueOf(objects[0]).split("\n")) {
      cause = cause.isEmpty() || line.startsWith("Caused by: ") ? line.replace("Caused by: ", "").trim() : cause;
    }
    Object[] place = PLACE.get();
    String where = place == null ? "" : " (at or after attribute " + place[1] + " of " + place[0] + ")";
    String text = cause + where;
    ERROR.set(text.substring(0, Math.min(text.length(), LIMIT)));
  }
}

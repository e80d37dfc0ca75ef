package io.prometheus.jmx.logger;

/** Takes the place of the collector's factory of loggers. */
public final class LoggerFactory {
  private LoggerFactory() {}

  /**
   * Makes a logger that says nothing.
   *
   * @param type who logs
   * @return the logger
   */
  public static Logger getLogger(Class<?> type) {
    return new Logger();
  }
}

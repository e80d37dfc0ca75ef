package io.prometheus.jmx.logger;

/** Replaces the factory of the collector's loggers. */
public final class LoggerFactory {
  private LoggerFactory() {}

  /** Returns a logger. */
  public static Logger getLogger(Class<?> type) {
    return new Logger();
  }
}

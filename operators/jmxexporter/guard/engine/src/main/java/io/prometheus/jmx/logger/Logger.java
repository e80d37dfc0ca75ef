package io.prometheus.jmx.logger;

/**
 * Takes the place of the collector's logger and says nothing.
 *
 * <p>The collector's own puts its formatter into the handlers of the application's root logger, which changes the log
 * of the application, and repeats each failing bean at each scrape. What went wrong is in the metrics.
 */
public final class Logger {
  Logger() {}

  /**
   * Tells whether details are logged.
   *
   * @return false
   */
  public boolean isTraceEnabled() {
    return false;
  }

  /**
   * Tells whether information is logged.
   *
   * @return false
   */
  public boolean isInfoEnabled() {
    return false;
  }

  /**
   * Tells whether warnings are logged.
   *
   * @return false
   */
  public boolean isWarnEnabled() {
    return false;
  }

  /**
   * Tells whether errors are logged.
   *
   * @return false
   */
  public boolean isErrorEnabled() {
    return false;
  }

  /**
   * Drops a message.
   *
   * @param message the message
   */
  public void trace(String message) {}

  /**
   * Drops a message.
   *
   * @param format its format
   * @param object what goes into it
   */
  public void trace(String format, Object object) {}

  /**
   * Drops a message.
   *
   * @param format its format
   * @param objects what goes into it
   */
  public void trace(String format, Object... objects) {}

  /**
   * Drops a message.
   *
   * @param message the message
   */
  public void info(String message) {}

  /**
   * Drops a message.
   *
   * @param format its format
   * @param object what goes into it
   */
  public void info(String format, Object object) {}

  /**
   * Drops a message.
   *
   * @param format its format
   * @param objects what goes into it
   */
  public void info(String format, Object... objects) {}

  /**
   * Drops a message.
   *
   * @param message the message
   */
  public void warn(String message) {}

  /**
   * Drops a message.
   *
   * @param format its format
   * @param object what goes into it
   */
  public void warn(String format, Object object) {}

  /**
   * Drops a message.
   *
   * @param format its format
   * @param objects what goes into it
   */
  public void warn(String format, Object... objects) {}

  /**
   * Drops a message.
   *
   * @param message the message
   */
  public void error(String message) {}

  /**
   * Drops a message.
   *
   * @param format its format
   * @param object what goes into it
   */
  public void error(String format, Object object) {}

  /**
   * Drops a message.
   *
   * @param format its format
   * @param objects what goes into it
   */
  public void error(String format, Object... objects) {}
}

package dev.slipway.jmx.engine;

/** Makes the threads of an endpoint. */
final class Threads {
  /** Name of a thread of any engine that a getter holds although nobody waits for it. */
  static final String LATE = "jmx-guard-late";

  private Threads() {}

  /** Counts the threads that getters hold; each of them keeps an engine loaded. */
  static long countLate() {
    return Thread.getAllStackTraces().keySet().stream().filter(each -> each.getName().equals(LATE)).count();
  }

  /** A thread that keeps no JVM alive, and whose failure never reaches the default handler of the application. */
  static Thread daemon(Runnable work, String name) {
    Thread thread = new Thread(work, name);
    thread.setDaemon(true);
    thread.setUncaughtExceptionHandler((failed, e) -> {});
    thread.setContextClassLoader(Threads.class.getClassLoader());
    return thread;
  }
}

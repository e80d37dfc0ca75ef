package dev.slipway.jmx.engine;

/** Makes the threads of an endpoint. */
final class Threads {
  private Threads() {}

  /** A thread that keeps no JVM alive, and whose failure never reaches the default handler of the application. */
  static Thread daemon(Runnable work, String name) {
    Thread thread = new Thread(work, name);
    thread.setDaemon(true);
    thread.setUncaughtExceptionHandler((failed, e) -> {});
    thread.setContextClassLoader(Threads.class.getClassLoader());
    return thread;
  }
}

package dev.slipway.jmx.engine;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Threads that respond to requests, and do not wait indefinitely for a client.
 *
 * <p>An interrupt closes the connection that a thread reads from or writes to. It is sent only while a thread deals
 * with its client, and never while it waits for the beans: see {@link #pause}.
 */
final class Patience extends ThreadPoolExecutor {
  private static final long LIMIT_NANOS = TimeUnit.SECONDS.toNanos(5);
  private static final long LOOK_MILLIS = 1_000;

  private final Map<Thread, Long> busy = new ConcurrentHashMap<>();

  Patience(int threads, String name) {
    // No limit of the queue: a connection whose request is rejected would never be closed.
    super(threads, threads, 30, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), work -> Threads.daemon(work, name));
    allowCoreThreadTimeOut(true);
    Threads.daemon(this::watch, name + "-watchdog").start();
  }

  @Override
  protected void beforeExecute(Thread thread, Runnable work) {
    resume();
  }

  @Override
  protected void afterExecute(Runnable work, Throwable failure) {
    pause();
    // What came too late for this request must not hit the next one.
    Thread.interrupted();
  }

  /** Has the calling thread left alone, until {@link #resume}. */
  void pause() {
    synchronized (busy) {
      busy.remove(Thread.currentThread());
    }
  }

  /** Gives the calling thread some seconds for its client. */
  void resume() {
    busy.put(Thread.currentThread(), System.nanoTime());
  }

  private void watch() {
    try {
      while (!isShutdown()) {
        Thread.sleep(LOOK_MILLIS);
        synchronized (busy) {
          long now = System.nanoTime();
          busy.forEach((thread, since) -> interruptAfter(thread, now - since));
        }
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private static void interruptAfter(Thread thread, long nanos) {
    if (nanos > LIMIT_NANOS) {
      thread.interrupt();
    }
  }
}

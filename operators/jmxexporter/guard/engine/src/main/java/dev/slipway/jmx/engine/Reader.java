package dev.slipway.jmx.engine;

import io.prometheus.metrics.model.registry.PrometheusRegistry;
import io.prometheus.metrics.model.snapshots.MetricSnapshots;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Reads a registry in a thread of its own, one read at a time.
 *
 * <p>A getter of the application may hang, and cannot be stopped: interrupting it could close its files. So a scrape
 * waits for a limited time and leaves the thread to the getter. Until the getter returns, no other scrape waits.
 */
final class Reader {
  private static final int WAITING = 8;

  private final PrometheusRegistry registry;
  private final ThreadPoolExecutor executor =
      new ThreadPoolExecutor(
          1, 1, 30, TimeUnit.SECONDS, new ArrayBlockingQueue<>(WAITING), work -> Threads.daemon(work, "jmx-guard-beans"));
  /** The last read that was not waited for to its end; null for none. */
  private volatile Future<MetricSnapshots> late;

  Reader(PrometheusRegistry registry) {
    this.registry = registry;
    executor.allowCoreThreadTimeOut(true);
  }

  MetricSnapshots read(long limitMillis) throws TimeoutException {
    Future<MetricSnapshots> before = late;
    if (before != null && !before.isDone()) {
      throw new TimeoutException("a bean of the application has not answered an earlier request");
    }
    Future<MetricSnapshots> result;
    try {
      result = executor.submit(() -> registry.scrape());
    } catch (RejectedExecutionException e) {
      throw new TimeoutException("too many requests wait for the beans of the application");
    }
    try {
      return result.get(limitMillis, TimeUnit.MILLISECONDS);
    } catch (TimeoutException e) {
      late = result;
      throw new TimeoutException("a bean of the application does not answer within " + limitMillis + " ms");
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new TimeoutException("interrupted");
    } catch (ExecutionException e) {
      throw rethrow(e.getCause());
    }
  }

  void close() {
    // Not shutdownNow: that interrupts a getter of the application.
    executor.shutdown();
  }

  private static RuntimeException rethrow(Throwable cause) {
    if (cause instanceof Error) {
      throw (Error) cause;
    }
    return cause instanceof RuntimeException ? (RuntimeException) cause : new IllegalStateException(cause);
  }
}

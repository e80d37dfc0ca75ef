package dev.slipway.jmx.engine;

import dev.slipway.jmx.regex.Budget;
import io.prometheus.jmx.logger.Logger;
import io.prometheus.metrics.model.registry.PrometheusRegistry;
import io.prometheus.metrics.model.snapshots.MetricSnapshots;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;

/**
 * Reads a registry in a thread of its own, one read at a time.
 *
 * <p>A getter of the application may hang, and cannot be stopped: interrupting it could close its files. So a scrape
 * waits for a limited time and leaves the thread to the getter. Until the getter returns, no other scrape waits. The
 * patterns of rules are ours, and end when nobody waits for them.
 */
final class Reader {
  private static final int WAITING = 8;
  private static final String NAME = "jmx-guard-beans";

  private final PrometheusRegistry registry;
  private final ThreadPoolExecutor executor =
      new ThreadPoolExecutor(
          1, 1, 30, TimeUnit.SECONDS, new ArrayBlockingQueue<>(WAITING), work -> Threads.daemon(work, NAME));
  /** The last read that was not waited for to its end; null for none. */
  private volatile Future<Beans> late;
  private Thread working;

  Reader(PrometheusRegistry registry) {
    this.registry = registry;
    executor.allowCoreThreadTimeOut(true);
  }

  /** What one read returned: the metrics, and why they are incomplete; empty if they are complete. */
  static final class Beans {
    final MetricSnapshots metrics;
    final String error;

    Beans(MetricSnapshots metrics, String error) {
      this.metrics = metrics;
      this.error = error;
    }
  }

  Beans read(long limitMillis, Predicate<String> names) throws TimeoutException {
    Future<Beans> before = late;
    if (before != null && !before.isDone()) {
      throw new TimeoutException("a bean of the application has not answered an earlier request");
    }
    Budget budget = new Budget();
    Future<Beans> result;
    try {
      result = executor.submit(() -> scrape(budget, names));
    } catch (RejectedExecutionException e) {
      throw new TimeoutException("too many requests wait for the beans of the application");
    }
    try {
      return result.get(limitMillis, TimeUnit.MILLISECONDS);
    } catch (TimeoutException e) {
      late = result;
      name(Threads.LATE);
      throw new TimeoutException("the beans of the application do not answer within " + limitMillis + " ms");
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new TimeoutException("interrupted");
    } catch (ExecutionException e) {
      throw rethrow(e.getCause());
    } finally {
      budget.cancel();
    }
  }

  private Beans scrape(Budget budget, Predicate<String> names) {
    budget.enter();
    Logger.takeError();
    synchronized (this) {
      working = Thread.currentThread();
    }
    try {
      MetricSnapshots found = names == null ? registry.scrape() : registry.scrape(names);
      return new Beans(found, Logger.takeError());
    } finally {
      synchronized (this) {
        name(NAME);
        working = null;
      }
    }
  }

  /** Names the thread that reads, if one does: the name counts, across engines. */
  private synchronized void name(String name) {
    if (working != null) {
      working.setName(name);
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

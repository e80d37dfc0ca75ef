package dev.slipway.jmx.guard;

import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.lang.management.MemoryUsage;

/**
 * Refuses to load classes where they would not fit.
 *
 * <p>An engine has about 1,500 classes. A limit of metaspace that they exceed hits the application, which may be set up
 * to end at its first OutOfMemoryError.
 */
final class Headroom {
  private static final long NEEDED = 24L << 20;

  private Headroom() {}

  static void check() throws Refusal {
    for (MemoryPoolMXBean pool : ManagementFactory.getMemoryPoolMXBeans()) {
      if (pool.getType() == MemoryType.NON_HEAP && isForClasses(pool.getName())) {
        MemoryUsage usage = pool.getUsage();
        long left = usage.getMax() - usage.getUsed();
        if (usage.getMax() > 0 && left < NEEDED) {
          String message = pool.getName() + " has " + (left >> 20) + " MiB left, the exporter needs " + (NEEDED >> 20);
          throw new Refusal("TooLittleMemory", message);
        }
      }
    }
  }

  private static boolean isForClasses(String pool) {
    return pool.contains("Metaspace") || pool.contains("Class Space");
  }
}

package dev.slipway.jmx.guard;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.lang.management.MemoryUsage;
import java.util.Map;

/**
 * Refuses to load classes where they would not fit.
 *
 * <p>An engine has about 1,500 classes. A limit of metaspace that they exceed hits the application, which may be set up
 * to end at its first OutOfMemoryError.
 */
final class Headroom {
  /** An engine takes 7 MiB of metaspace, and 1 MiB of the part for compressed pointers. */
  private static final long NEEDED = 12L << 20;

  private static final long NEEDED_COMPRESSED = 3L << 20;

  private Headroom() {}

  /** The files of each version of control groups, as a container sees them. */
  private static final String[][] CGROUPS = {
    {"/sys/fs/cgroup/", "memory.max", "memory.current", "inactive_file "},
    {"/sys/fs/cgroup/memory/", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
  };

  /** Refuses a container that is near its memory limit; an injector has looked before, a new JVM has not. */
  static void check(Map<String, String> request) throws Refusal {
    long needed = Long.parseLong(request.getOrDefault("memoryBytes", "0"));
    for (String[] names : CGROUPS) {
      try {
        long free = readNumber(names[0] + names[1]) - readNumber(names[0] + names[2]);
        for (String line : Files.readLines(names[0] + "memory.stat")) {
          free += line.startsWith(names[3]) ? Long.parseLong(line.substring(names[3].length()).trim()) : 0;
        }
        if (free < needed) {
          String message = "the container has " + (free >> 20) + " MiB left, the exporter needs " + (needed >> 20);
          throw new Refusal("TooLittleMemory", message);
        }
      } catch (IOException | NumberFormatException e) {
        // There is no limit, or the other version of control groups.
      }
    }
    check();
  }

  private static long readNumber(String path) throws IOException {
    return Long.parseLong(Files.readLines(path).get(0));
  }

  private static void check() throws Refusal {
    for (MemoryPoolMXBean pool : ManagementFactory.getMemoryPoolMXBeans()) {
      if (pool.getType() == MemoryType.NON_HEAP && isForClasses(pool.getName())) {
        MemoryUsage usage = pool.getUsage();
        long left = usage.getMax() - usage.getUsed();
        long needed = pool.getName().contains("Compressed") ? NEEDED_COMPRESSED : NEEDED;
        if (usage.getMax() > 0 && left < needed) {
          String message = pool.getName() + " has " + (left >> 20) + " MiB left, the exporter needs " + (needed >> 20);
          throw new Refusal("TooLittleMemory", message);
        }
      }
    }
  }

  private static boolean isForClasses(String pool) {
    return pool.contains("Metaspace") || pool.contains("Class Space");
  }
}

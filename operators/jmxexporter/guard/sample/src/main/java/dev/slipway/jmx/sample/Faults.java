package dev.slipway.jmx.sample;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import javax.management.ObjectName;

/**
 * Faults that applications have, for tests, each switched on by a system property.
 *
 * <ul>
 *   <li>{@code shop.hang}: the getter of a bean does not return for as long as this file exists.
 *   <li>{@code shop.halt}: an exception that no thread catches ends the process, as many servers have it.
 *   <li>{@code shop.zoo}: there are beans with difficult names and values.
 *   <li>{@code shop.beans}: there are as many more beans, with ten attributes each.
 *   <li>{@code shop.fill}: once this file exists, the heap is filled up to the number of bytes in it.
 * </ul>
 */
public final class Faults {
  private static final int HALTED = 3;
  private static final List<byte[]> BALLAST = new ArrayList<>();

  private Faults() {}

  /** What the bean shows. */
  public interface StockMXBean {
    /**
     * Counts what is in stock.
     *
     * @return pieces
     * @throws Exception interrupted
     */
    long getPieces() throws Exception;
  }

  static void arrange() throws Exception {
    if (System.getProperty("shop.hang") != null) {
      Path file = Paths.get(System.getProperty("shop.hang"));
      ManagementFactory.getPlatformMBeanServer().registerMBean(new Stock(file), new ObjectName("shop:type=Stock"));
    }
    if (System.getProperty("shop.zoo") != null) {
      Zoo.open();
    }
    Zoo.crowd(Integer.getInteger("shop.beans", 0));
    if (System.getProperty("shop.halt") != null) {
      Thread.setDefaultUncaughtExceptionHandler(
          (thread, e) -> {
            System.out.println("UNCAUGHT in " + thread.getName() + ": " + e);
            Runtime.getRuntime().halt(HALTED);
          });
    }
  }

  static void fill() throws IOException {
    String name = System.getProperty("shop.fill");
    if (name == null || !Files.exists(Paths.get(name))) {
      return;
    }
    long left = Long.parseLong(new String(Files.readAllBytes(Paths.get(name))).trim());
    Files.delete(Paths.get(name));
    Runtime runtime = Runtime.getRuntime();
    System.gc();
    while (runtime.maxMemory() - (runtime.totalMemory() - runtime.freeMemory()) > left) {
      BALLAST.add(new byte[64 << 10]);
    }
  }

  /** A bean that hangs. */
  public static final class Stock implements StockMXBean {
    private final Path file;

    Stock(Path file) {
      this.file = file;
    }

    @Override
    public long getPieces() throws Exception {
      while (Files.exists(file)) {
        Thread.sleep(50);
      }
      return 1;
    }
  }
}

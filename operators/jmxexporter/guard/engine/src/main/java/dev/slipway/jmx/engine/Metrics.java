package dev.slipway.jmx.engine;

import dev.slipway.jmx.regex.Budget;
import io.prometheus.jmx.JmxCollector;
import io.prometheus.metrics.config.EscapingScheme;
import io.prometheus.metrics.core.metrics.Gauge;
import io.prometheus.metrics.core.metrics.Info;
import io.prometheus.metrics.expositionformats.ExpositionFormatWriter;
import io.prometheus.metrics.expositionformats.OpenMetricsTextFormatWriter;
import io.prometheus.metrics.expositionformats.PrometheusTextFormatWriter;
import io.prometheus.metrics.instrumentation.jvm.Allocations;
import io.prometheus.metrics.instrumentation.jvm.JvmBufferPoolMetrics;
import io.prometheus.metrics.instrumentation.jvm.JvmClassLoadingMetrics;
import io.prometheus.metrics.instrumentation.jvm.JvmCompilationMetrics;
import io.prometheus.metrics.instrumentation.jvm.JvmGarbageCollectorMetrics;
import io.prometheus.metrics.instrumentation.jvm.JvmMemoryMetrics;
import io.prometheus.metrics.instrumentation.jvm.JvmNativeMemoryMetrics;
import io.prometheus.metrics.instrumentation.jvm.JvmRuntimeInfoMetric;
import io.prometheus.metrics.instrumentation.jvm.JvmThreadsMetrics;
import io.prometheus.metrics.instrumentation.jvm.ProcessMetrics;
import io.prometheus.metrics.model.registry.PrometheusRegistry;
import io.prometheus.metrics.model.snapshots.MetricSnapshots;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;
import java.util.zip.GZIPOutputStream;
import javax.management.MalformedObjectNameException;
import org.yaml.snakeyaml.LoaderOptions;
import org.yaml.snakeyaml.Yaml;
import org.yaml.snakeyaml.constructor.SafeConstructor;

/** The metrics of one configuration, in a registry of their own. */
final class Metrics {
  private static final String[] UNSUPPORTED = {"hostPort", "jmxUrl", "httpServer", "openTelemetry"};
  private static final int LARGEST_GUESS = 16 << 20;
  private static final int MOST_LATE = 3;

  private final PrometheusRegistry registry = new PrometheusRegistry();
  private final Reader reader = new Reader(registry);
  private final String configHash;
  private Allocations allocations;
  private volatile int size = 64 << 10;
  private volatile LastScrape last;
  private volatile int families;

  /**
   * Reads a configuration and tries it: twice, in both formats, as Prometheus may ask for it.
   *
   * @throws InvalidConfig the configuration cannot be read, or a scrape with it fails
   * @throws TimeoutException the beans do not answer in time
   */
  Metrics(String config, String configHash, int reloads, long limitMillis) throws InvalidConfig, TimeoutException {
    this.configHash = configHash;
    if (Threads.countLate() >= MOST_LATE) {
      // Each attempt may lose a thread to the same bean; a configuration that excludes it must have one.
      throw new TimeoutException(MOST_LATE + " earlier attempts still wait for beans that do not answer");
    }
    try {
      Map<?, ?> root = parse(config);
      JmxCollector collector = new Counted(config);
      startNow(collector);
      collector.register(registry);
      if (!Boolean.TRUE.equals(root.get("excludeJvmMetrics"))) {
        registerJvm();
      }
      registerOwn(reloads);
      tryBoth(limitMillis);
    } catch (InvalidConfig | TimeoutException e) {
      close();
      throw e;
    } catch (Exception | StackOverflowError e) {
      close();
      throw new InvalidConfig(describe(e));
    } catch (Throwable e) {
      close();
      throw e;
    }
  }

  static String version() {
    String version = Engine.class.getPackage().getImplementationVersion();
    return version == null ? "unknown" : version;
  }

  String configHash() {
    return configHash;
  }

  LastScrape last() {
    return last;
  }

  /** A collector that counts what the rules make of the beans: rules that fit no bean fail nowhere. */
  private final class Counted extends JmxCollector {
    Counted(String config) throws MalformedObjectNameException {
      super(config);
    }

    @Override
    public MetricSnapshots collect() {
      MetricSnapshots found = super.collect();
      families = found.size();
      return found;
    }
  }

  /** A rendered scrape, as it is sent. */
  static final class Page extends ByteArrayOutputStream {
    final boolean gzip;
    String type;

    Page(int size, boolean gzip) {
      super(size);
      this.gzip = gzip;
    }
  }

  /**
   * Reads the beans and renders them; the result is kept for the operator.
   *
   * @param names which metrics are wanted; null for all
   * @throws TimeoutException the beans do not answer in time
   */
  Page scrape(boolean openMetrics, boolean gzip, Predicate<String> names, long limitMillis) throws TimeoutException {
    long start = System.nanoTime();
    try {
      Reader.Beans beans = reader.read(limitMillis, names);
      Page page = render(beans, openMetrics, gzip);
      if (names == null) {
        size = Math.min(LARGEST_GUESS, page.size() + (page.size() >> 3) + 64);
        last = new LastScrape(200, beans.error, start, page.size(), families);
      }
      return page;
    } catch (TimeoutException e) {
      last = new LastScrape(503, e.getMessage(), start, 0, -1);
      throw e;
    } catch (RuntimeException | StackOverflowError | Budget.Exceeded e) {
      last = new LastScrape(500, describe(e), start, 0, -1);
      throw e;
    }
  }

  private Page render(Reader.Beans beans, boolean openMetrics, boolean gzip) {
    ExpositionFormatWriter writer =
        openMetrics ? OpenMetricsTextFormatWriter.create() : PrometheusTextFormatWriter.create();
    Page page = new Page(size, gzip);
    page.type = writer.getContentType();
    try (OutputStream out = gzip ? new GZIPOutputStream(page) : page) {
      writer.write(out, beans.metrics, EscapingScheme.UNDERSCORE_ESCAPING);
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
    return page;
  }

  void close() {
    reader.close();
    if (allocations != null) {
      allocations.close();
    }
  }

  private static Map<?, ?> parse(String config) throws InvalidConfig {
    Object root = new Yaml(new SafeConstructor(new LoaderOptions())).load(config);
    if (root == null) {
      return new java.util.HashMap<>();
    }
    if (!(root instanceof Map)) {
      throw new InvalidConfig("not a mapping");
    }
    for (String key : UNSUPPORTED) {
      if (((Map<?, ?>) root).containsKey(key)) {
        throw new InvalidConfig(key + " has no place in the configuration of an injected exporter");
      }
    }
    return (Map<?, ?>) root;
  }

  /** The collector counts `startDelaySeconds` from its own start, which is any time in the life of the JVM. */
  private static void startNow(JmxCollector collector) throws ReflectiveOperationException {
    Field config = JmxCollector.class.getDeclaredField("config");
    config.setAccessible(true);
    Field delay = config.getType().getDeclaredField("startDelaySeconds");
    delay.setAccessible(true);
    delay.set(config.get(collector), 0);
  }

  private void registerJvm() {
    JvmBufferPoolMetrics.builder().register(registry);
    JvmClassLoadingMetrics.builder().register(registry);
    JvmCompilationMetrics.builder().register(registry);
    JvmGarbageCollectorMetrics.builder().register(registry);
    JvmMemoryMetrics.builder().register(registry);
    JvmNativeMemoryMetrics.builder().register(registry);
    JvmRuntimeInfoMetric.builder().register(registry);
    JvmThreadsMetrics.builder().register(registry);
    ProcessMetrics.builder().register(registry);
    allocations = new Allocations(registry);
  }

  private void registerOwn(int reloads) {
    Info.builder()
        .name("jmx_exporter_build_info")
        .help("JMX Exporter build information")
        .labelNames("name", "version")
        .register(registry)
        .setLabelValues("jmx_guard", version());
    Info.builder()
        .name("jmx_guard_config_info")
        .help("Hash of the configuration that is served")
        .labelNames("hash")
        .register(registry)
        .setLabelValues(configHash);
    Gauge.builder()
        .name("jmx_guard_config_reloads")
        .help("Times that another configuration was put in since the start of the endpoint")
        .register(registry)
        .set(reloads);
  }

  private void tryBoth(long limitMillis) throws InvalidConfig, TimeoutException {
    long deadline = System.nanoTime() + limitMillis * 1_000_000;
    try {
      for (boolean openMetrics : new boolean[] {false, true}) {
        scrape(openMetrics, false, null, Math.max(1, (deadline - System.nanoTime()) / 1_000_000));
        if (!last.error.isEmpty()) {
          throw new InvalidConfig("a rule fails on the beans of this JVM: " + last.error);
        }
      }
    } catch (RuntimeException | StackOverflowError | Budget.Exceeded e) {
      throw new InvalidConfig("a scrape fails on the beans of this JVM: " + describe(e));
    }
  }

  /** Describes an error in a line of limited length. */
  static String describe(Throwable e) {
    String text = e instanceof StackOverflowError ? "nested too deeply" : String.valueOf(e.getMessage());
    text = e.getMessage() == null && !(e instanceof StackOverflowError) ? e.toString() : text;
    text = text.replace('\n', ' ').replace('\r', ' ');
    return text.length() > 500 ? text.substring(0, 500) : text;
  }
}

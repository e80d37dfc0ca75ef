package dev.slipway.jmx.engine;

import io.prometheus.jmx.JmxCollector;
import io.prometheus.metrics.core.metrics.Gauge;
import io.prometheus.metrics.core.metrics.Info;
import io.prometheus.metrics.instrumentation.jvm.JvmBufferPoolMetrics;
import io.prometheus.metrics.instrumentation.jvm.JvmClassLoadingMetrics;
import io.prometheus.metrics.instrumentation.jvm.JvmCompilationMetrics;
import io.prometheus.metrics.instrumentation.jvm.JvmGarbageCollectorMetrics;
import io.prometheus.metrics.instrumentation.jvm.JvmMemoryMetrics;
import io.prometheus.metrics.instrumentation.jvm.JvmRuntimeInfoMetric;
import io.prometheus.metrics.instrumentation.jvm.JvmThreadsMetrics;
import io.prometheus.metrics.instrumentation.jvm.ProcessMetrics;
import io.prometheus.metrics.model.registry.PrometheusRegistry;
import io.prometheus.metrics.model.snapshots.GaugeSnapshot;
import io.prometheus.metrics.model.snapshots.MetricSnapshot;
import io.prometheus.metrics.model.snapshots.MetricSnapshots;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import org.yaml.snakeyaml.LoaderOptions;
import org.yaml.snakeyaml.Yaml;
import org.yaml.snakeyaml.constructor.SafeConstructor;

/** The metrics of one configuration, in a registry of their own. */
final class Metrics {
  private static final String[] UNSUPPORTED = {"hostPort", "jmxUrl", "httpServer", "openTelemetry"};

  private final PrometheusRegistry registry = new PrometheusRegistry();
  private final Reader reader = new Reader(registry);
  private final String configHash;

  /**
   * Reads a configuration and tries it once.
   *
   * @throws InvalidConfig the configuration cannot be read, or a rule fails on the beans of this JVM
   * @throws TimeoutException a bean does not answer
   */
  Metrics(String config, String configHash, int reloads, long limitMillis) throws InvalidConfig, TimeoutException {
    this.configHash = configHash;
    try {
      Map<?, ?> root = parse(config);
      new JmxCollector(config).register(registry);
      if (!Boolean.TRUE.equals(root.get("excludeJvmMetrics"))) {
        registerJvm();
      }
    } catch (InvalidConfig e) {
      throw e;
    } catch (Exception | StackOverflowError e) {
      throw new InvalidConfig(shorten(e));
    }
    registerOwn(reloads);
    try {
      tryOnce(limitMillis);
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

  /**
   * Reads the beans.
   *
   * @throws TimeoutException a bean does not answer
   */
  MetricSnapshots scrape(long limitMillis) throws TimeoutException {
    return reader.read(limitMillis);
  }

  void close() {
    reader.close();
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

  /** All but allocation metrics, which listen to the garbage collector and could not be taken away again. */
  private void registerJvm() {
    JvmBufferPoolMetrics.builder().register(registry);
    JvmClassLoadingMetrics.builder().register(registry);
    JvmCompilationMetrics.builder().register(registry);
    JvmGarbageCollectorMetrics.builder().register(registry);
    JvmMemoryMetrics.builder().register(registry);
    JvmRuntimeInfoMetric.builder().register(registry);
    JvmThreadsMetrics.builder().register(registry);
    ProcessMetrics.builder().register(registry);
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

  private void tryOnce(long limitMillis) throws InvalidConfig, TimeoutException {
    try {
      for (MetricSnapshot snapshot : scrape(limitMillis)) {
        if (snapshot.getMetadata().getName().equals("jmx_scrape_error") && isSet((GaugeSnapshot) snapshot)) {
          throw new InvalidConfig("a rule fails on the beans of this JVM");
        }
      }
    } catch (RuntimeException | StackOverflowError e) {
      throw new InvalidConfig("a rule fails on the beans of this JVM: " + shorten(e));
    }
  }

  private static boolean isSet(GaugeSnapshot gauge) {
    return gauge.getDataPoints().stream().anyMatch(point -> point.getValue() > 0);
  }

  private static String shorten(Throwable e) {
    String text = e instanceof StackOverflowError ? "nested too deeply" : String.valueOf(e.getMessage());
    return text.length() > 500 ? text.substring(0, 500) : text;
  }
}

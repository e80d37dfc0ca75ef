package dev.slipway.jmx.reference;

import io.prometheus.jmx.BuildInfoMetrics;
import io.prometheus.jmx.JmxCollector;
import io.prometheus.metrics.config.EscapingScheme;
import io.prometheus.metrics.expositionformats.ExpositionFormatWriter;
import io.prometheus.metrics.expositionformats.OpenMetricsTextFormatWriter;
import io.prometheus.metrics.expositionformats.PrometheusTextFormatWriter;
import io.prometheus.metrics.instrumentation.jvm.JvmMetrics;
import io.prometheus.metrics.model.registry.PrometheusRegistry;
import java.io.File;
import java.io.OutputStream;
import java.lang.instrument.Instrumentation;
import java.nio.file.Files;
import java.nio.file.Paths;

/** The collector and the client library as they are, put together as the JMX exporter does; for comparisons in tests. */
public final class Reference {
  private Reference() {}

  /**
   * Writes the metrics of this JVM into two files beside the configuration, one for each format.
   *
   * @param config path of the configuration
   * @param instrumentation not used
   * @throws Exception a scrape failed
   */
  public static void agentmain(String config, Instrumentation instrumentation) throws Exception {
    PrometheusRegistry registry = new PrometheusRegistry();
    new BuildInfoMetrics().register(registry);
    if (!new String(Files.readAllBytes(Paths.get(config)), "UTF-8").contains("excludeJvmMetrics: true")) {
      JvmMetrics.builder().register(registry);
    }
    new JmxCollector(new File(config), JmxCollector.Mode.AGENT).register(registry);
    // Some metrics about a scrape are those of the scrape before.
    registry.scrape();
    write(registry, PrometheusTextFormatWriter.create(), config + ".text");
    write(registry, OpenMetricsTextFormatWriter.create(), config + ".openmetrics");
  }

  private static void write(PrometheusRegistry registry, ExpositionFormatWriter writer, String path)
      throws Exception {
    try (OutputStream out = Files.newOutputStream(Paths.get(path))) {
      writer.write(out, registry.scrape(), EscapingScheme.UNDERSCORE_ESCAPING);
    }
  }
}

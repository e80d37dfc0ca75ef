package dev.slipway.jmx.reference;

import com.sun.net.httpserver.HttpServer;
import io.prometheus.jmx.BuildInfoMetrics;
import io.prometheus.jmx.JmxCollector;
import io.prometheus.metrics.config.EscapingScheme;
import io.prometheus.metrics.expositionformats.ExpositionFormatWriter;
import io.prometheus.metrics.expositionformats.OpenMetricsTextFormatWriter;
import io.prometheus.metrics.expositionformats.PrometheusTextFormatWriter;
import io.prometheus.metrics.instrumentation.jvm.JvmMetrics;
import io.prometheus.metrics.model.registry.PrometheusRegistry;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.OutputStream;
import java.lang.instrument.Instrumentation;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.GZIPOutputStream;

/** The collector and the client library as they are, put together as the JMX exporter does; for comparisons in tests. */
public final class Reference {
  private Reference() {}

  /**
   * Writes the metrics of this JVM into two files next to the configuration, one for each format, or serves them.
   *
   * @param argument path of the configuration; to serve metrics, a comma and a port
   * @param instrumentation not used
   * @throws Exception a scrape failed
   */
  public static void agentmain(String argument, Instrumentation instrumentation) throws Exception {
    String[] parts = argument.split(",");
    String config = parts[0];
    PrometheusRegistry registry = new PrometheusRegistry();
    new BuildInfoMetrics().register(registry);
    if (!new String(Files.readAllBytes(Paths.get(config)), "UTF-8").contains("excludeJvmMetrics: true")) {
      JvmMetrics.builder().register(registry);
    }
    new JmxCollector(new File(config), JmxCollector.Mode.AGENT).register(registry);
    if (parts.length > 1) {
      serve(registry, Integer.parseInt(parts[1]));
      return;
    }
    // Some metrics about a scrape are those of the scrape before.
    registry.scrape();
    write(registry, PrometheusTextFormatWriter.create(), config + ".text");
    write(registry, OpenMetricsTextFormatWriter.create(), config + ".openmetrics");
  }

  /** Serves OpenMetrics with gzip, in the steps of the scrape handler of the client library. */
  private static void serve(PrometheusRegistry registry, int port) throws Exception {
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 3);
    AtomicInteger size = new AtomicInteger(2 << 9);
    server.createContext(
        "/metrics",
        exchange -> {
          ByteArrayOutputStream body = new ByteArrayOutputStream(size.get() + 1024);
          OpenMetricsTextFormatWriter.create()
              .write(body, registry.scrape(), EscapingScheme.UNDERSCORE_ESCAPING);
          size.set(body.size());
          exchange.getResponseHeaders().set("Content-Encoding", "gzip");
          exchange.sendResponseHeaders(200, 0);
          try (OutputStream out = new GZIPOutputStream(exchange.getResponseBody())) {
            body.writeTo(out);
          }
        });
    server.setExecutor(
        Executors.newCachedThreadPool(
            work -> {
              Thread thread = new Thread(work);
              thread.setDaemon(true);
              return thread;
            }));
    server.start();
  }

  private static void write(PrometheusRegistry registry, ExpositionFormatWriter writer, String path)
      throws Exception {
    try (OutputStream out = Files.newOutputStream(Paths.get(path))) {
      writer.write(out, registry.scrape(), EscapingScheme.UNDERSCORE_ESCAPING);
    }
  }
}

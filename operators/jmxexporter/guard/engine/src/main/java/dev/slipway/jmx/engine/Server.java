package dev.slipway.jmx.engine;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.prometheus.metrics.config.EscapingScheme;
import io.prometheus.metrics.expositionformats.OpenMetricsTextFormatWriter;
import io.prometheus.metrics.expositionformats.PrometheusTextFormatWriter;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.zip.GZIPOutputStream;

/** The endpoint: one path, few threads, all of them daemons. */
final class Server {
  private static final int THREADS = 2;
  private static final int WAITING = 8;

  private final HttpServer server;
  private final ThreadPoolExecutor executor;
  private final String path;

  /** Takes the port; scrapes are answered with 404 until there are metrics. */
  Server(String host, int port, String path, Supplier<Metrics> metrics) throws IOException {
    this.path = path;
    InetSocketAddress address = new InetSocketAddress(InetAddress.getByName(host), port);
    // A server that cannot bind keeps file descriptors of the application; so something smaller tries first.
    try (ServerSocket probe = new ServerSocket()) {
      probe.setReuseAddress(true);
      probe.bind(address);
    }
    server = HttpServer.create(address, WAITING);
    executor =
        new ThreadPoolExecutor(
            THREADS, THREADS, 30, TimeUnit.SECONDS, new ArrayBlockingQueue<>(WAITING), Server::daemon);
    executor.allowCoreThreadTimeOut(true);
    server.setExecutor(executor);
    server.createContext("/", exchange -> handle(exchange, metrics.get()));
    // Only a server that was started gives its port back when it is stopped.
    server.start();
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work, "jmx-guard-endpoint");
    thread.setDaemon(true);
    thread.setContextClassLoader(Server.class.getClassLoader());
    return thread;
  }

  int port() {
    return server.getAddress().getPort();
  }

  void stop() {
    server.stop(0);
    executor.shutdownNow();
  }

  private void handle(HttpExchange exchange, Metrics metrics) {
    try {
      boolean get = exchange.getRequestMethod().equals("GET");
      if (!get && !exchange.getRequestMethod().equals("HEAD")) {
        send(exchange, 405, "text/plain", new byte[0]);
      } else if (metrics == null || !exchange.getRequestURI().getPath().equals(path)) {
        send(exchange, 404, "text/plain", ("Metrics are at " + path + "\n").getBytes(StandardCharsets.UTF_8));
      } else {
        scrape(exchange, metrics);
      }
    } catch (IOException e) {
      // Whoever asked has gone.
    } finally {
      exchange.close();
    }
  }

  private static void scrape(HttpExchange exchange, Metrics metrics) throws IOException {
    String accept = String.valueOf(exchange.getRequestHeaders().getFirst("Accept"));
    ByteArrayOutputStream body = new ByteArrayOutputStream(64 << 10);
    String type;
    try {
      if (accept.contains("application/openmetrics-text")) {
        OpenMetricsTextFormatWriter writer = OpenMetricsTextFormatWriter.create();
        writer.write(body, metrics.scrape(), EscapingScheme.UNDERSCORE_ESCAPING);
        type = writer.getContentType();
      } else {
        PrometheusTextFormatWriter writer = PrometheusTextFormatWriter.create();
        writer.write(body, metrics.scrape(), EscapingScheme.UNDERSCORE_ESCAPING);
        type = writer.getContentType();
      }
    } catch (RuntimeException | StackOverflowError e) {
      send(exchange, 500, "text/plain", (e + "\n").getBytes(StandardCharsets.UTF_8));
      return;
    }
    send(exchange, 200, type, body.toByteArray());
  }

  private static void send(HttpExchange exchange, int status, String type, byte[] body) throws IOException {
    exchange.getResponseHeaders().set("Content-Type", type);
    if (exchange.getRequestMethod().equals("HEAD")) {
      exchange.sendResponseHeaders(status, -1);
      return;
    }
    byte[] content = body;
    if (String.valueOf(exchange.getRequestHeaders().getFirst("Accept-Encoding")).contains("gzip")) {
      exchange.getResponseHeaders().set("Content-Encoding", "gzip");
      content = compress(body);
    }
    exchange.sendResponseHeaders(status, content.length == 0 ? -1 : content.length);
    try (OutputStream out = exchange.getResponseBody()) {
      out.write(content);
    }
  }

  private static byte[] compress(byte[] body) throws IOException {
    ByteArrayOutputStream compressed = new ByteArrayOutputStream(body.length / 4 + 64);
    try (GZIPOutputStream out = new GZIPOutputStream(compressed)) {
      out.write(body);
    }
    return compressed.toByteArray();
  }
}

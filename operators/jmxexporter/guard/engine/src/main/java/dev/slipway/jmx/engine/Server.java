package dev.slipway.jmx.engine;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsParameters;
import com.sun.net.httpserver.HttpsServer;
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
import java.security.GeneralSecurityException;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;
import java.util.zip.GZIPOutputStream;
import javax.net.ssl.SSLParameters;

/**
 * The endpoint: one path, few threads, all of them daemons.
 *
 * <p>The server of the JDK waits for a slow client without a limit, and its limits are properties of the whole JVM. So
 * {@link Patience} ends what a client holds up.
 */
final class Server {
  private static final int THREADS = 4;
  private static final int BACKLOG = 8;
  private static final long SCRAPE_MILLIS = 20_000;

  private final HttpServer server;
  private final Patience executor;
  private final Control control;
  private final String path;
  private volatile Access access;

  /** Takes the port; scrapes are answered with 404 until there are metrics. */
  Server(Map<String, String> request, Control control, Supplier<Metrics> metrics)
      throws IOException, GeneralSecurityException {
    Access first = new Access(request);
    this.control = control;
    this.path = request.get("path");
    int port = Integer.parseInt(request.get("port"));
    InetSocketAddress address = new InetSocketAddress(InetAddress.getByName(request.get("host")), port);
    // A server that cannot bind keeps file descriptors of the application; so something smaller tries first.
    try (ServerSocket probe = new ServerSocket()) {
      probe.setReuseAddress(true);
      probe.bind(address);
    }
    server = first.context == null ? HttpServer.create(address, BACKLOG) : HttpsServer.create(address, BACKLOG);
    access = first;
    if (server instanceof HttpsServer) {
      ((HttpsServer) server).setHttpsConfigurator(new Encryption(first));
    }
    executor = new Patience(THREADS, "jmx-guard-endpoint");
    server.setExecutor(executor);
    server.createContext("/", exchange -> handle(exchange, metrics.get()));
    // Only a server that was started gives its port back when it is stopped.
    server.start();
  }

  /**
   * Has another password asked for, from the next request on.
   *
   * @throws IllegalStateException the certificates differ, which a server that was started cannot change
   */
  void allow(Access next) {
    if (!access.isEncryptedLike(next)) {
      throw new IllegalStateException("another certificate needs another endpoint; restart the JVM");
    }
    access = next;
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
      if (metrics != null && exchange.getRequestURI().getPath().equals(Control.PATH)) {
        control(exchange, metrics);
      } else if (!get && !exchange.getRequestMethod().equals("HEAD")) {
        send(exchange, 405, "");
      } else if (metrics == null || !exchange.getRequestURI().getPath().equals(path)) {
        send(exchange, 404, "Metrics are at " + path + "\n");
      } else if (!access.allows(exchange)) {
        refuse(exchange);
      } else {
        scrape(exchange, metrics);
      }
    } catch (Throwable e) {
      // The client has gone, or there is no memory left; neither is the application's business.
    } finally {
      exchange.close();
    }
  }

  private void refuse(HttpExchange exchange) throws IOException {
    if (access.asksForPassword()) {
      exchange.getResponseHeaders().set("WWW-Authenticate", "Basic realm=\"metrics\"");
    }
    send(exchange, access.asksForPassword() ? 401 : 403, "The metrics need a login\n");
  }

  private void control(HttpExchange exchange, Metrics metrics) throws Exception {
    switch (exchange.getRequestMethod()) {
      case "HEAD":
      case "GET":
        send(exchange, 200, control.describe(metrics.configHash(), Metrics.version()));
        break;
      case "PUT":
        reconfigure(exchange);
        break;
      default:
        send(exchange, 405, "");
    }
  }

  private void reconfigure(HttpExchange exchange) throws Exception {
    byte[] config = Control.read(exchange.getRequestBody());
    if (config == null) {
      send(exchange, 413, "longer than " + (Control.LIMIT >> 10) + " KiB\n");
      return;
    }
    if (!control.isSigned(config, exchange.getRequestHeaders().getFirst("Signature"))) {
      send(exchange, 403, "the signature does not fit\n");
      return;
    }
    executor.pause();
    Map<String, String> answer = control.apply(config);
    executor.resume();
    StringBuilder text = new StringBuilder();
    answer.forEach((name, value) -> text.append(name).append('=').append(value.replace('\n', ' ')).append('\n'));
    send(exchange, answer.containsKey("reason") ? 422 : 200, text.toString());
  }

  private static void send(HttpExchange exchange, int status, String text) throws IOException {
    send(exchange, status, "text/plain; charset=utf-8", text.getBytes(StandardCharsets.UTF_8));
  }

  private void scrape(HttpExchange exchange, Metrics metrics) throws IOException {
    String accept = String.valueOf(exchange.getRequestHeaders().getFirst("Accept"));
    ByteArrayOutputStream body = new ByteArrayOutputStream(64 << 10);
    String type;
    executor.pause();
    try {
      if (accept.contains("application/openmetrics-text")) {
        OpenMetricsTextFormatWriter writer = OpenMetricsTextFormatWriter.create();
        writer.write(body, metrics.scrape(SCRAPE_MILLIS), EscapingScheme.UNDERSCORE_ESCAPING);
        type = writer.getContentType();
      } else {
        PrometheusTextFormatWriter writer = PrometheusTextFormatWriter.create();
        writer.write(body, metrics.scrape(SCRAPE_MILLIS), EscapingScheme.UNDERSCORE_ESCAPING);
        type = writer.getContentType();
      }
    } catch (TimeoutException e) {
      executor.resume();
      send(exchange, 503, e.getMessage() + "\n");
      return;
    } catch (RuntimeException | Error e) {
      executor.resume();
      send(exchange, 500, e + "\n");
      return;
    }
    executor.resume();
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

  /** TLS 1.2 and later; the certificate of a client is asked for, and looked at where the metrics are asked for. */
  private static final class Encryption extends HttpsConfigurator {
    private final boolean clients;

    Encryption(Access access) {
      super(access.context);
      clients = access.clients;
    }

    @Override
    public void configure(HttpsParameters parameters) {
      SSLParameters chosen = getSSLContext().getDefaultSSLParameters();
      chosen.setProtocols(
          Arrays.stream(chosen.getProtocols())
              .filter(each -> each.equals("TLSv1.2") || each.equals("TLSv1.3"))
              .toArray(String[]::new));
      // Wanted and not needed: the operator has no certificate, and signs what it sends.
      chosen.setWantClientAuth(clients);
      parameters.setSSLParameters(chosen);
    }
  }
}

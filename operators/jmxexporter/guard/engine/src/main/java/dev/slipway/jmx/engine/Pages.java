package dev.slipway.jmx.engine;

import io.prometheus.metrics.model.registry.MetricNameFilter;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;
import java.util.function.Supplier;

/** What the endpoint serves: the metrics, its health, and the page of the operator. */
final class Pages {
  private static final String HEALTH = "/-/healthy";
  private static final int AT_ONCE = 4;
  private static final long SCRAPE_MILLIS = 20_000;
  private static final long LONGEST_MILLIS = 300_000;
  /** Prometheus gives up at the limit that it names; the response must come before. */
  private static final double MARGIN = 0.95;

  private final Semaphore renderers = new Semaphore(AT_ONCE);
  private final String path;
  private final Control control;
  private final Supplier<Metrics> metrics;
  private final Supplier<Access> access;
  /** Since when clients are refused and none is accepted, in milliseconds; 0 if the last one was accepted. */
  private volatile long refused;
  /** Whether an injector has brought the login or certificate again since then. */
  private volatile boolean renewed;

  Pages(String path, Control control, Supplier<Metrics> metrics, Supplier<Access> access) {
    this.path = path;
    this.control = control;
    this.metrics = metrics;
    this.access = access;
  }

  /** A response, whole. */
  static final class Response {
    final int status;
    final Map<String, String> headers = new LinkedHashMap<>();
    private final ByteArrayOutputStream body;

    Response(int status, String type, ByteArrayOutputStream body) {
      this.status = status;
      this.body = body;
      headers.put("Content-Type", type);
      headers.put("Content-Length", String.valueOf(body.size()));
    }

    static Response of(int status, String text) throws IOException {
      byte[] content = text.getBytes(StandardCharsets.UTF_8);
      ByteArrayOutputStream body = new ByteArrayOutputStream(content.length);
      body.write(content);
      return new Response(status, "text/plain; charset=utf-8", body);
    }

    void send(OutputStream out, boolean headOnly) throws IOException {
      StringBuilder head = new StringBuilder("HTTP/1.1 ").append(status).append(status == 200 ? " OK" : " Error");
      headers.forEach((name, value) -> head.append("\r\n").append(name).append(": ").append(value));
      out.write(head.append("\r\n\r\n").toString().getBytes(StandardCharsets.ISO_8859_1));
      if (!headOnly) {
        body.writeTo(out);
      }
      out.flush();
    }
  }

  Response respond(Connection.Request request) throws Exception {
    Metrics now = metrics.get();
    boolean reads = request.method.equals("GET") || request.method.equals("HEAD");
    if (now != null && request.path.equals(Control.PATH)) {
      return control(request, now, reads);
    }
    if (!reads) {
      return Response.of(405, "");
    }
    if (now != null && request.path.equals(path)) {
      if (!access.get().allows(request)) {
        noteRefusal();
        return refuse();
      }
      refused = 0;
      return scrape(request, now);
    }
    if (now != null && request.path.equals(HEALTH)) {
      return Response.of(200, "Exporter is healthy.\n");
    }
    String text = "Metrics are at " + path + ", the health is at " + HEALTH + "\n";
    return Response.of(request.path.equals("/") ? 200 : 404, text);
  }

  void noteRefusal() {
    if (refused == 0) {
      renewed = false;
      refused = System.currentTimeMillis();
    }
  }

  /** Counts from now: the clients had no chance yet. */
  void noteRenewal() {
    if (refused != 0) {
      renewed = true;
      refused = System.currentTimeMillis();
    }
  }

  /** A login that somebody changed in its Secret shows in this way only: Prometheus uses the new one. */
  private String describeRefusals() {
    long since = refused;
    long seconds = since == 0 ? 0 : (System.currentTimeMillis() - since) / 1000;
    return "refusedSeconds=" + seconds + "\nrenewed=" + renewed + "\n";
  }

  private Response refuse() throws IOException {
    boolean password = access.get().asksForPassword();
    Response response = Response.of(password ? 401 : 403, "The metrics need a login\n");
    if (password) {
      response.headers.put("WWW-Authenticate", "Basic realm=\"metrics\"");
    }
    return response;
  }

  private Response control(Connection.Request request, Metrics now, boolean reads) throws Exception {
    if (reads) {
      boolean closed = access.get().isClosed();
      String text = control.describe(now.configHash(), Metrics.version(), closed);
      return Response.of(200, text + now.last().describe(closed) + (closed ? describeRefusals() : ""));
    }
    if (!request.method.equals("PUT")) {
      return Response.of(405, "");
    }
    if (request.body == null) {
      return Response.of(413, "longer than " + (Control.LIMIT >> 10) + " KiB\n");
    }
    if (!control.isSigned(request.body, request.header("signature"))) {
      return Response.of(403, "the signature does not fit\n");
    }
    Map<String, String> answer = control.apply(request.body, limitOf(request));
    StringBuilder text = new StringBuilder();
    answer.forEach((name, value) -> text.append(name).append('=').append(value.replace('\n', ' ')).append('\n'));
    return Response.of(answer.containsKey("reason") ? 422 : 200, text.toString());
  }

  private Response scrape(Connection.Request request, Metrics now) throws Exception {
    long limit = limitOf(request);
    if (!renderers.tryAcquire(limit, TimeUnit.MILLISECONDS)) {
      return Response.of(503, "too many scrapes at the same time\n");
    }
    try {
      boolean gzip = request.header("accept-encoding").contains("gzip");
      boolean openMetrics = request.header("accept").contains("application/openmetrics-text");
      Metrics.Page page = now.scrape(openMetrics, gzip, namesOf(request.query), limit);
      Response response = new Response(200, page.type, page);
      if (gzip) {
        response.headers.put("Content-Encoding", "gzip");
      }
      return response;
    } catch (TimeoutException e) {
      return Response.of(503, e.getMessage() + "\n");
    } catch (RuntimeException | Error e) {
      return Response.of(500, e + "\n");
    } finally {
      renderers.release();
    }
  }

  /** Returns the time that the client waits, as Prometheus sends it. */
  private static long limitOf(Connection.Request request) {
    try {
      double seconds = Double.parseDouble(request.header("x-prometheus-scrape-timeout-seconds"));
      return (long) Math.max(500, Math.min(LONGEST_MILLIS, seconds * 1000 * MARGIN));
    } catch (NumberFormatException e) {
      return SCRAPE_MILLIS;
    }
  }

  /** Returns the filter of `name[]`; null for all metrics. */
  private static Predicate<String> namesOf(String query) throws IOException {
    List<String> names = new ArrayList<>();
    for (String each : query.split("&")) {
      String[] pair = each.split("=", 2);
      if (pair.length == 2 && URLDecoder.decode(pair[0], "UTF-8").equals("name[]")) {
        names.add(URLDecoder.decode(pair[1], "UTF-8"));
      }
    }
    return names.isEmpty() ? null : MetricNameFilter.builder().nameMustBeEqualTo(names).build();
  }
}

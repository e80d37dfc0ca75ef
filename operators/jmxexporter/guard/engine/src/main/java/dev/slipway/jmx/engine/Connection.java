package dev.slipway.jmx.engine;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.cert.Certificate;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSocket;

/** One connection: reads requests of HTTP/1.1 and sends the pages. {@link Server} closes it when it is late. */
final class Connection implements Runnable {
  /** How long a client may take to send a request, or to read a response. */
  private static final long CLIENT_NANOS = TimeUnit.SECONDS.toNanos(5);
  /** How long a connection may wait for its next request. */
  private static final long IDLE_NANOS = TimeUnit.MINUTES.toNanos(3);

  private static final int HEAD_LIMIT = 16 << 10;

  private final Socket socket;
  private final Access access;
  private final Pages pages;
  private final Consumer<Connection> ended;
  private volatile long since = System.nanoTime();
  private volatile long limit = CLIENT_NANOS;
  private int left;

  Connection(Socket socket, Access access, Pages pages, Consumer<Connection> ended) {
    this.socket = socket;
    this.access = access;
    this.pages = pages;
    this.ended = ended;
  }

  /** A request without its body. */
  static final class Request {
    String method;
    String path;
    String query = "";
    byte[] body = {};
    /** Whether the client has a certificate that the authorities signed. */
    boolean certified;

    final Map<String, String> headers = new HashMap<>();

    String header(String name) {
      return headers.getOrDefault(name, "");
    }
  }

  long since() {
    return since;
  }

  boolean waits() {
    return limit != Long.MAX_VALUE;
  }

  boolean isLate() {
    return System.nanoTime() - since > limit;
  }

  void close() {
    ended.accept(this);
    close(socket);
  }

  static void close(Closeable socket) {
    try {
      if (socket != null) {
        socket.close();
      }
    } catch (IOException e) {
      // It is closed.
    }
  }

  @Override
  public void run() {
    try {
      Socket channel = access.context == null ? socket : access.encrypt(socket);
      InputStream in = new BufferedInputStream(channel.getInputStream());
      OutputStream out = new BufferedOutputStream(channel.getOutputStream(), 16 << 10);
      boolean more = true;
      while (more) {
        Request request = read(in, out);
        more = request != null && serve(request, channel, out);
      }
    } catch (SSLException e) {
      // Of all that is no TLS, only a certificate that the authorities did not sign concerns anybody.
      if (access.clients) {
        pages.noteRefusal();
      }
    } catch (Throwable e) {
      // The client has gone or there is no memory left; neither is the application's business.
    } finally {
      close();
    }
  }

  private void allow(long nanos) {
    since = System.nanoTime();
    limit = nanos;
  }

  private boolean serve(Request request, Socket channel, OutputStream out) throws Exception {
    request.certified = channel instanceof SSLSocket && hasCertificate((SSLSocket) channel);
    // Nothing limits the time of the beans but the limit of the scrape.
    allow(Long.MAX_VALUE);
    Pages.Response response = pages.respond(request);
    allow(CLIENT_NANOS);
    boolean more = !request.header("connection").equalsIgnoreCase("close") && response.status != 413;
    response.headers.put("Connection", more ? "keep-alive" : "close");
    response.send(out, request.method.equals("HEAD"));
    allow(IDLE_NANOS);
    return more;
  }

  /** A certificate that the authorities did not sign ends the handshake, so any that is here is good. */
  private static boolean hasCertificate(SSLSocket channel) {
    try {
      Certificate[] found = channel.getSession().getPeerCertificates();
      return found.length > 0;
    } catch (SSLPeerUnverifiedException e) {
      return false;
    }
  }

  /** Reads a request; returns null at the end of the connection, and for what is no request. */
  private Request read(InputStream in, OutputStream out) throws IOException {
    left = HEAD_LIMIT;
    String[] first = readLine(in).split(" ");
    if (first.length != 3 || !first[2].startsWith("HTTP/1.")) {
      return null;
    }
    Request request = new Request();
    request.method = first[0];
    String[] target = first[1].replaceFirst("^https?://[^/]*", "").split("\\?", 2);
    request.path = target[0];
    request.query = target.length > 1 ? target[1] : "";
    for (String line = readLine(in); !line.isEmpty(); line = readLine(in)) {
      int colon = Math.max(0, line.indexOf(':'));
      request.headers.merge(
          line.substring(0, colon).toLowerCase(Locale.ROOT), line.substring(colon + 1).trim(), (a, b) -> a + "," + b);
    }
    if (first[2].equals("HTTP/1.0")) {
      request.headers.put("connection", "close");
    }
    return readBody(request, in, out) ? request : null;
  }

  private static boolean readBody(Request request, InputStream in, OutputStream out) throws IOException {
    String length = request.header("content-length");
    if (length.isEmpty()) {
      return request.header("transfer-encoding").isEmpty();
    }
    if (!length.matches("\\d{1,9}") || !request.header("transfer-encoding").isEmpty()) {
      return false;
    }
    int size = Integer.parseInt(length);
    if (size > Control.LIMIT) {
      request.body = null;
      return true;
    }
    if (request.header("expect").equalsIgnoreCase("100-continue")) {
      out.write("HTTP/1.1 100 Continue\r\n\r\n".getBytes(StandardCharsets.ISO_8859_1));
      out.flush();
    }
    request.body = new byte[size];
    for (int at = 0; at < size; ) {
      int count = in.read(request.body, at, size - at);
      if (count < 0) {
        return false;
      }
      at += count;
    }
    return true;
  }

  private String readLine(InputStream in) throws IOException {
    StringBuilder line = new StringBuilder();
    for (int each = in.read(); each != '\n'; each = in.read()) {
      if (each < 0 || --left < 0) {
        throw new EOFException();
      }
      if (limit == IDLE_NANOS) {
        // The next request has begun.
        allow(CLIENT_NANOS);
      }
      line.append((char) each);
    }
    int end = line.length() > 0 && line.charAt(line.length() - 1) == '\r' ? line.length() - 1 : line.length();
    return line.substring(0, end);
  }
}

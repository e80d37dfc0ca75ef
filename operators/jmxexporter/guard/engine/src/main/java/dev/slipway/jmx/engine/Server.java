package dev.slipway.jmx.engine;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.Comparator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/**
 * The port of the endpoint, and its connections: few, each with a daemon thread and a limit of time.
 *
 * <p>The HTTP server of the JDK has no limit of connections but properties of the whole JVM, so anyone who reaches the
 * port could use up the file descriptors of the application.
 */
final class Server {
  private static final int CONNECTIONS = 32;
  private static final int BACKLOG = 8;
  private static final int LOOK_MILLIS = 1_000;

  private final ServerSocket listener = new ServerSocket();
  private final Set<Connection> open = ConcurrentHashMap.newKeySet();
  private final Pages pages;
  private volatile Access access;

  /** Takes the port; scrapes are answered with 404 until there are metrics. */
  Server(Map<String, String> request, Access access, Control control, Supplier<Metrics> metrics) throws IOException {
    this.access = access;
    this.pages = new Pages(request.get("path"), control, metrics, () -> this.access);
    try {
      listener.setReuseAddress(true);
      listener.setSoTimeout(LOOK_MILLIS);
      int port = Integer.parseInt(request.get("port"));
      listener.bind(new InetSocketAddress(InetAddress.getByName(request.get("host")), port), BACKLOG);
      Threads.daemon(this::accept, "jmx-guard-endpoint").start();
    } catch (Throwable e) {
      listener.close();
      throw e;
    }
  }

  /** Applies another access control, to open connections as well. */
  void allow(Access next) {
    boolean same = access.isLike(next);
    access = next;
    pages.noteRenewal();
    if (!same) {
      open.forEach(Connection::close);
    }
  }

  int port() {
    return listener.getLocalPort();
  }

  void stop() {
    try {
      listener.close();
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
    open.forEach(Connection::close);
  }

  private void accept() {
    while (!listener.isClosed()) {
      Socket socket = null;
      try {
        socket = listener.accept();
        makeRoom();
        Connection connection = new Connection(socket, access, pages, open::remove);
        open.add(connection);
        Threads.daemon(connection, "jmx-guard-connection").start();
      } catch (SocketTimeoutException e) {
        open.stream().filter(Connection::isLate).forEach(Connection::close);
      } catch (Throwable e) {
        // No file descriptor, thread or memory is left: that is the application's, so wait.
        Connection.close(socket);
        pause();
      }
    }
  }

  /** Closes what is late, or what has waited longest for its client; a scrape that runs is not interrupted. */
  private void makeRoom() throws IOException {
    open.stream().filter(Connection::isLate).forEach(Connection::close);
    if (open.size() >= CONNECTIONS) {
      Optional<Connection> oldest =
          open.stream().filter(Connection::waits).min(Comparator.comparingLong(Connection::since));
      oldest.orElseThrow(() -> new IOException("too many scrapes")).close();
    }
  }

  private static void pause() {
    try {
      Thread.sleep(LOOK_MILLIS / 10);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}

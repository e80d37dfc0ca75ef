package dev.slipway.jmx.sample;

import java.io.IOException;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicLong;
import javax.management.ObjectName;

/** An application that answers on a port, with a bean that counts its answers. */
public final class Shop {
  private Shop() {}

  /** What the bean shows. */
  public interface OrdersMXBean {
    /**
     * Tells how many orders there were.
     *
     * @return orders since the start
     */
    long getCount();
  }

  /** Counts orders. */
  public static final class Orders implements OrdersMXBean {
    private final AtomicLong count = new AtomicLong();

    @Override
    public long getCount() {
      return count.get();
    }

    void add() {
      count.incrementAndGet();
    }
  }

  /**
   * Serves until it is killed.
   *
   * @param arguments port to answer on; 0 for any, which is then printed
   * @throws Exception the port is taken
   */
  public static void main(String[] arguments) throws Exception {
    Orders orders = new Orders();
    ManagementFactory.getPlatformMBeanServer().registerMBean(orders, new ObjectName("shop:type=Orders"));
    Faults.arrange();
    int port = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 8080;
    try (ServerSocket server = new ServerSocket(port, 50, InetAddress.getByName("0.0.0.0"))) {
      System.out.println("serving on " + server.getLocalPort());
      while (true) {
        serve(server, orders);
      }
    }
  }

  private static void serve(ServerSocket server, Orders orders) {
    try (Socket client = server.accept();
        OutputStream out = client.getOutputStream()) {
      orders.add();
      Faults.fill();
      out.write(("order " + orders.getCount() + "\n").getBytes(StandardCharsets.UTF_8));
    } catch (IOException e) {
      System.err.println("client left: " + e);
    }
  }
}

package dev.slipway.jmx.engine;

import java.lang.reflect.Field;
import java.net.BindException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.GeneralSecurityException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;

/**
 * Serves the metrics of this JVM; spoken to in maps, since the agent that calls is in another class loader.
 *
 * <p>An answer with a {@code reason} is a refusal. Nothing has changed then.
 */
public final class Engine implements Function<Map<String, String>, Map<String, String>> {
  private final Control control = new Control(this);
  private Server server;
  private volatile Metrics metrics;
  private int reloads;

  @Override
  public synchronized Map<String, String> apply(Map<String, String> call) {
    try {
      switch (call.get("command")) {
        case "start":
          return start(call);
        // An agent that was loaded by an earlier version asks for the status if it knows of no other
        // configuration. It does not know what the operator sent to the endpoint.
        case "status":
        case "reconfigure":
          return reconfigure(call);
        default:
          return stop();
      }
    } catch (InvalidConfig e) {
      control.noteRefusal(call, "ConfigInvalid", e.getMessage());
      return refuse("ConfigInvalid", e.getMessage());
    } catch (BindException e) {
      return refuse("PortInUse", call.get("host") + ":" + call.get("port") + ": " + e.getMessage());
    } catch (GeneralSecurityException e) {
      return refuse("TlsInvalid", String.valueOf(e.getMessage()));
    } catch (TimeoutException e) {
      control.noteRefusal(call, "Timeout", e.getMessage());
      return refuse("Timeout", e.getMessage());
    } catch (Throwable e) {
      return refuse("AgentError", causeOf(e));
    }
  }

  private Map<String, String> start(Map<String, String> call) throws Exception {
    Access access = new Access(call);
    control.accept(call);
    // The port comes first: an engine that cannot have it must leave no trace.
    server = new Server(call, access, control, () -> metrics);
    try {
      metrics = new Metrics(read(call), call.get("configHash"), 0, limitOf(call));
    } catch (Throwable e) {
      // Even if there is no memory left: a server without metrics would keep the port.
      stop();
      throw e;
    }
    return status(true);
  }

  /** Everything that may fail comes first: a change is applied as a whole, or not at all. */
  private Map<String, String> reconfigure(Map<String, String> call) throws Exception {
    // From an injector, which names everything; the operator sends the configuration alone.
    Access access = call.containsKey("port") ? new Access(call) : null;
    Metrics before = metrics;
    boolean same = before.configHash().equals(call.get("configHash"));
    Metrics next = same ? before : new Metrics(read(call), call.get("configHash"), reloads + 1, limitOf(call));
    if (access != null) {
      try {
        control.accept(call);
      } catch (Throwable e) {
        if (!same) {
          next.close();
        }
        throw e;
      }
      server.allow(access);
    }
    if (!same) {
      metrics = next;
      before.close();
      control.renew();
      reloads++;
    }
    control.noteRefusal(new HashMap<>(), "", "");
    return status(!same);
  }

  private Map<String, String> stop() {
    if (server != null) {
      server.stop();
    }
    if (metrics != null) {
      metrics.close();
    }
    server = null;
    metrics = null;
    endScheduler();
    return new HashMap<>();
  }

  /** The library of metrics has a thread for its own lifetime, which would keep these classes loaded. */
  private static void endScheduler() {
    try {
      Field executor = Class.forName("io.prometheus.metrics.core.util.Scheduler").getDeclaredField("executor");
      executor.setAccessible(true);
      ((ExecutorService) executor.get(null)).shutdownNow();
    } catch (ReflectiveOperationException | RuntimeException e) {
      // Another version of the library; then the classes stay, and nothing is harmed.
    }
  }

  private Map<String, String> status(boolean changed) {
    Map<String, String> answer = new HashMap<>();
    answer.put("changed", String.valueOf(changed));
    answer.put("port", String.valueOf(server.port()));
    answer.put("configHash", metrics.configHash());
    answer.put("version", Metrics.version());
    answer.put("lastScrapeFamilies", String.valueOf(metrics.last().families));
    return answer;
  }

  /** Names the cause as well: the message of an ExceptionInInitializerError, for example, is empty. */
  private static String causeOf(Throwable e) {
    Throwable cause = e;
    while (cause.getCause() != null && cause.getCause() != cause) {
      cause = cause.getCause();
    }
    return cause == e ? e.toString() : e + ": " + cause;
  }

  private static long limitOf(Map<String, String> call) {
    return Long.parseLong(call.getOrDefault("limitMillis", "20000"));
  }

  private static String read(Map<String, String> call) throws Exception {
    if (call.containsKey("configText")) {
      return call.get("configText");
    }
    byte[] content = Files.readAllBytes(Paths.get(call.get("config")));
    if (content.length > Control.LIMIT) {
      throw new InvalidConfig("longer than " + (Control.LIMIT >> 10) + " KiB");
    }
    return new String(content, StandardCharsets.UTF_8);
  }

  private static Map<String, String> refuse(String reason, String message) {
    Map<String, String> answer = new HashMap<>();
    answer.put("reason", reason);
    answer.put("message", String.valueOf(message));
    return answer;
  }
}

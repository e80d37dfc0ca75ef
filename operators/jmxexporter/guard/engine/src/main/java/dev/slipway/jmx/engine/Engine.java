package dev.slipway.jmx.engine;

import java.lang.reflect.Field;
import java.net.BindException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.function.Function;

/**
 * Serves the metrics of this JVM; spoken to in maps, since the agent that calls is in another class loader.
 *
 * <p>An answer with a {@code reason} is a refusal. Nothing has changed then.
 */
public final class Engine implements Function<Map<String, String>, Map<String, String>> {
  private static final int CONFIG_LIMIT = 256 << 10;

  private Server server;
  private volatile Metrics metrics;
  private int reloads;

  @Override
  public synchronized Map<String, String> apply(Map<String, String> call) {
    try {
      switch (call.get("command")) {
        case "start":
          return start(call);
        case "reconfigure":
          return reconfigure(call);
        case "status":
          return status(false);
        default:
          return stop();
      }
    } catch (InvalidConfig e) {
      return refuse("ConfigInvalid", e.getMessage());
    } catch (BindException e) {
      return refuse("PortInUse", call.get("host") + ":" + call.get("port") + ": " + e.getMessage());
    } catch (Exception | LinkageError e) {
      return refuse("AgentError", e.toString());
    }
  }

  private Map<String, String> start(Map<String, String> call) throws Exception {
    // The port comes first: whoever cannot have it is to leave no trace.
    server = new Server(call.get("host"), Integer.parseInt(call.get("port")), call.get("path"), () -> metrics);
    try {
      metrics = new Metrics(read(call), call.get("configHash"), 0);
    } catch (Exception | LinkageError e) {
      stop();
      throw e;
    }
    return status(true);
  }

  private Map<String, String> reconfigure(Map<String, String> call) throws Exception {
    metrics = new Metrics(read(call), call.get("configHash"), reloads + 1);
    reloads++;
    return status(true);
  }

  private Map<String, String> stop() {
    if (server != null) {
      server.stop();
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
    return answer;
  }

  private static String read(Map<String, String> call) throws Exception {
    byte[] content = Files.readAllBytes(Paths.get(call.get("config")));
    if (content.length > CONFIG_LIMIT) {
      throw new InvalidConfig("longer than " + (CONFIG_LIMIT >> 10) + " KiB");
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

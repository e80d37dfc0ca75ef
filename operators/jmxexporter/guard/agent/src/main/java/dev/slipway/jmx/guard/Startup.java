package dev.slipway.jmx.guard;

import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * Serves the metrics of a JVM that was started with this agent, and follows the file of its configuration.
 *
 * <p>The application is not held up: all of this happens in a daemon thread, some seconds later. Until then the
 * application has had its turn to choose its own logging and its own server of beans, and a JVM that ends at once,
 * such as keytool, has loaded nothing.
 */
final class Startup {
  /** How long to leave a JVM alone after a refusal that may pass, such as a port that is taken. */
  private static final String RETRY_MILLIS = "60000";

  private Startup() {}

  static void begin(String argument) {
    Agent.start(
        "jmx-guard-startup",
        () -> {
          Map<String, String> request = Files.read(Paths.get(argument));
          Thread.sleep(Long.parseLong(request.getOrDefault("delayMillis", "5000")));
          if (isWanted(request)) {
            follow(request);
          }
        });
  }

  /** Leaves alone a JVM whose main class or jar the filters leave out, such as a launcher. */
  private static boolean isWanted(Map<String, String> request) {
    String main = mainOf(System.getProperty("sun.java.command", ""));
    String wanted = request.getOrDefault("mainClass", "");
    String excluded = request.getOrDefault("excludeMainClass", "");
    return (wanted.isEmpty() || find(wanted, main)) && (excluded.isEmpty() || !find(excluded, main));
  }

  private static boolean find(String pattern, String text) {
    return Pattern.compile(pattern).matcher(new Bounded(text)).find();
  }

  /** A text that ends a search after a number of steps: some patterns would take longer than the JVM runs. */
  private static final class Bounded implements CharSequence {
    private static final int STEPS = 10_000_000;
    private final String text;
    private int steps;

    Bounded(String text) {
      this.text = text;
    }

    @Override
    public int length() {
      return text.length();
    }

    @Override
    public char charAt(int index) {
      if (++steps > STEPS) {
        throw new IllegalStateException("a pattern of main classes needs too many steps");
      }
      return text.charAt(index);
    }

    @Override
    public CharSequence subSequence(int start, int end) {
      return text.substring(start, end);
    }
  }

  /** The main class, or the name of the jar without its directory, as an injector sees it. */
  static String mainOf(String command) {
    String main = command.trim().split(" ", 2)[0];
    return main.endsWith(".jar") ? main.substring(main.lastIndexOf('/') + 1) : main;
  }

  private static void follow(Map<String, String> request) throws InterruptedException {
    Path config = Paths.get(request.get("config"));
    long poll = Long.parseLong(request.getOrDefault("pollMillis", "5000"));
    String tried = "";
    while (true) {
      String hash = hashOf(config);
      long pause = poll;
      if (!hash.isEmpty() && !hash.equals(tried)) {
        tried = hash;
        Map<String, String> answer = ensure(request, hash);
        tell(request, answer);
        if ("error".equals(answer.get("outcome")) && !"ConfigInvalid".equals(answer.get("reason"))) {
          tried = "";
          pause = Long.parseLong(request.getOrDefault("retryMillis", RETRY_MILLIS));
        }
      }
      Thread.sleep(pause);
    }
  }

  /** Takes the first port of the range that is free, and stays at it. */
  private static Map<String, String> ensure(Map<String, String> request, String hash) {
    int first = Integer.parseInt(request.get("port"));
    int last = Integer.parseInt(request.getOrDefault("lastPort", request.get("port")));
    Map<String, String> answer = new HashMap<>();
    for (int port = first; port <= last; port++) {
      Map<String, String> wanted = new HashMap<>(request);
      wanted.put("command", "ensure");
      wanted.put("configHash", hash);
      wanted.put("port", String.valueOf(port));
      answer = Agent.guarded(wanted);
      if (!"PortInUse".equals(answer.get("reason"))) {
        if (!answer.containsKey("reason")) {
          request.put("port", String.valueOf(port));
          request.put("lastPort", String.valueOf(port));
        }
        return answer;
      }
    }
    return answer;
  }

  /** The hash of the configuration, empty while there is none. */
  private static String hashOf(Path config) {
    try {
      return Files.hash(config);
    } catch (NoSuchFileException e) {
      return "";
    } catch (Exception e) {
      Agent.ignore(e);
      return "";
    }
  }

  /** For people: nothing is printed, and nobody waits for an answer. */
  private static void tell(Map<String, String> request, Map<String, String> answer) {
    try {
      Agent.answer(request, answer);
    } catch (Exception e) {
      Agent.ignore(e);
    }
  }
}

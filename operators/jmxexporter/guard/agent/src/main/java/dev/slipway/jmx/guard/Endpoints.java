package dev.slipway.jmx.guard;

import java.util.HashMap;
import java.util.Map;
import java.util.Objects;

/**
 * The endpoints of this JVM, by the id that the requests give them.
 *
 * <p>{@code ensure} says what is to be, never what to do, so it may be repeated and come twice at once: an endpoint
 * that is as it should be is left alone, another configuration is put into the running endpoint, another engine or
 * port replaces it. What cannot be had leaves what was.
 */
final class Endpoints {
  private static final Map<String, Endpoint> RUNNING = new HashMap<>();

  private Endpoints() {}

  static synchronized Map<String, String> carryOut(Map<String, String> request) throws Exception {
    String id = Objects.requireNonNull(request.get("id"), "id");
    switch (String.valueOf(request.get("command"))) {
      case "ensure":
        return ensure(id, request);
      case "stop":
        return stop(id);
      default:
        throw new Refusal("AgentError", "unknown command " + request.get("command"));
    }
  }

  private static Map<String, String> ensure(String id, Map<String, String> request) throws Exception {
    Endpoint running = RUNNING.get(id);
    if (running == null) {
      Conditions.check(request);
      return start(id, request);
    }
    if (running.isLike(request)) {
      return running.reconfigure(request);
    }
    Conditions.check(request);
    return running.hasAddressOf(request) ? replace(id, running, request) : move(id, running, request);
  }

  private static Map<String, String> start(String id, Map<String, String> request) throws Exception {
    Endpoint endpoint = new Endpoint(request);
    Map<String, String> answer = endpoint.start();
    RUNNING.put(id, endpoint);
    return answer;
  }

  /** Starts the new endpoint before the old one ends: no scrape is missed. */
  private static Map<String, String> move(String id, Endpoint old, Map<String, String> request) throws Exception {
    Map<String, String> answer = start(id, request);
    // The new endpoint serves, and that is the answer, even if the old one fails to stop.
    tryStop(old);
    return answer;
  }

  /** The port can be held by one only; when the new engine does not start, the old one goes on. */
  private static Map<String, String> replace(String id, Endpoint old, Map<String, String> request) throws Exception {
    RUNNING.remove(id);
    boolean stopped = tryStop(old);
    try {
      return start(id, request);
    } catch (Throwable e) {
      if (stopped) {
        start(id, old.request());
      } else {
        // It still holds the port, and can be stopped by a later request.
        RUNNING.put(id, old);
      }
      throw e;
    }
  }

  private static boolean tryStop(Endpoint old) {
    try {
      old.stop();
      return true;
    } catch (Throwable e) {
      Agent.ignore(e);
      return false;
    }
  }

  private static Map<String, String> stop(String id) throws Exception {
    Endpoint running = RUNNING.get(id);
    Map<String, String> answer = new HashMap<>();
    answer.put("changed", String.valueOf(running != null));
    if (running != null) {
      running.stop();
      // Only now: an endpoint that fails to stop may still serve, and is asked again.
      RUNNING.remove(id);
    }
    return answer;
  }
}

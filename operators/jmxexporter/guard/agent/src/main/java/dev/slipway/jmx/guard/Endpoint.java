package dev.slipway.jmx.guard;

import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;

/** One engine in a class loader of its own; the two speak in maps, so they share classes of the JDK alone. */
final class Endpoint {
  private static final String ENGINE = "dev.slipway.jmx.engine.Engine";

  private final Map<String, String> request;
  private final URLClassLoader loader;
  private final Function<Map<String, String>, Map<String, String>> engine;

  Endpoint(Map<String, String> request) throws Exception {
    this.request = new HashMap<>(request);
    verify(request);
    URL[] jars = {Paths.get(request.get("engine")).toUri().toURL()};
    // The parent is what the JDK brings: the application and the engine do not see each other's classes.
    this.loader = new URLClassLoader(jars, ClassLoader.getSystemClassLoader().getParent());
    try {
      this.engine = load(loader);
    } catch (Throwable e) {
      loader.close();
      throw e;
    }
  }

  /** Refuses an engine that somebody has replaced since the injector, or the init container, put it there. */
  private static void verify(Map<String, String> request) throws Exception {
    String wanted = request.get("engineHash");
    String found = Files.hash(Paths.get(request.get("engine")));
    if (wanted != null && !wanted.equals(found)) {
      throw new Refusal("AgentError", request.get("engine") + " was changed: its SHA-256 is " + found);
    }
  }

  @SuppressWarnings("unchecked")
  private static Function<Map<String, String>, Map<String, String>> load(ClassLoader loader) throws Exception {
    return (Function<Map<String, String>, Map<String, String>>)
        loader.loadClass(ENGINE).getDeclaredConstructor().newInstance();
  }

  Map<String, String> request() {
    return request;
  }

  boolean isLike(Map<String, String> other) {
    return hasAddressOf(other) && same("engine", other) && same("path", other);
  }

  boolean hasAddressOf(Map<String, String> other) {
    return same("host", other) && same("port", other);
  }

  private boolean same(String name, Map<String, String> other) {
    return Objects.equals(request.get(name), other.get(name));
  }

  Map<String, String> start() throws Exception {
    try {
      return call("start", request);
    } catch (Throwable e) {
      loader.close();
      throw e;
    }
  }

  Map<String, String> reconfigure(Map<String, String> wanted) throws Exception {
    // The engine knows what it serves: the operator may have sent it another configuration meanwhile.
    Map<String, String> answer = call("reconfigure", wanted);
    request.putAll(wanted);
    return answer;
  }

  void stop() throws Exception {
    call("stop", request);
    // Only now: an engine that fails to stop needs its classes for the next attempt.
    loader.close();
  }

  private Map<String, String> call(String command, Map<String, String> arguments) throws Exception {
    Thread thread = Thread.currentThread();
    ClassLoader before = thread.getContextClassLoader();
    thread.setContextClassLoader(loader);
    try {
      Map<String, String> call = new HashMap<>(arguments);
      call.put("command", command);
      Map<String, String> answer = engine.apply(call);
      if (answer.containsKey("reason")) {
        throw new Refusal(answer.get("reason"), answer.get("message"));
      }
      return answer;
    } finally {
      thread.setContextClassLoader(before);
    }
  }
}

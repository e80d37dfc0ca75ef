package dev.slipway.jmx.guard;

import java.lang.instrument.Instrumentation;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Map;

/**
 * Takes requests to start, change and stop a metrics endpoint inside a running JVM.
 *
 * <p>The JVM belongs to somebody else, and nothing here may harm it: no failure leaves this class, nothing is
 * written to its output, each thread is a daemon, and {@code System.exit} is not to be found. The classes of this jar
 * stay on the class path of the application for good, in the version that came first. So they are few, know nothing
 * of metrics, and load the rest (the engine) with a loader of its own, which can be dropped.
 *
 * <p>The argument is the path of a request, a properties file; its answer is a properties file too, at the path that
 * the request names.
 */
public final class Agent {
  private Agent() {}

  /**
   * Carries out a request in a JVM that runs already.
   *
   * <p>The work is done in a thread of its own: the thread that calls belongs to the attach mechanism, which answers
   * jcmd and jstack too, and a bean of the application may hang.
   *
   * @param argument path of the request
   * @param instrumentation not used
   */
  public static void agentmain(String argument, Instrumentation instrumentation) {
    carryOut(argument);
  }

  /**
   * Begins with the application, as `-javaagent` has it.
   *
   * @param argument path of a request, whose configuration is followed from then on
   * @param instrumentation not used
   */
  public static void premain(String argument, Instrumentation instrumentation) {
    try {
      Startup.begin(argument);
    } catch (Throwable e) {
      // Whatever left this method would end the JVM.
      ignore(e);
    }
  }

  private static void carryOut(String argument) {
    try {
      // Read here: the injector may remove the file once the agent was loaded. It may contain a private key,
      // which must not stay if the injector is killed.
      Map<String, String> request = Files.read(Paths.get(argument));
      java.nio.file.Files.deleteIfExists(Paths.get(argument));
      start("jmx-guard", () -> answer(request, guarded(request)));
    } catch (Throwable e) {
      // Without a readable request there is no place for an answer; the missing answer tells.
      ignore(e);
    }
  }

  /** Work that may fail, as it always may in a JVM of somebody else. */
  interface Work {
    void run() throws Exception;
  }

  /** Starts a daemon thread whose failures reach nobody, least of all the application's default handler. */
  static void start(String name, Work work) {
    Thread thread =
        new Thread(
            () -> {
              try {
                work.run();
              } catch (Throwable e) {
                ignore(e);
              }
            },
            name);
    thread.setDaemon(true);
    thread.setUncaughtExceptionHandler((failed, e) -> ignore(e));
    // Threads of the endpoint descend from this one, and must not keep a class loader of the application.
    thread.setContextClassLoader(ClassLoader.getSystemClassLoader());
    thread.start();
  }

  static Map<String, String> guarded(Map<String, String> request) {
    try {
      return Endpoints.carryOut(request);
    } catch (Refusal refusal) {
      return failure(refusal.reason(), refusal.getMessage());
    } catch (Throwable e) {
      return failure("AgentError", e.toString());
    }
  }

  static void answer(Map<String, String> request, Map<String, String> answer) throws Exception {
    answer.putIfAbsent("outcome", "ok");
    Files.write(Paths.get(request.get("answer")), answer);
  }

  private static Map<String, String> failure(String reason, String message) {
    Map<String, String> answer = new HashMap<>();
    answer.put("outcome", "error");
    answer.put("reason", reason);
    answer.put("message", String.valueOf(message));
    return answer;
  }

  static void ignore(Throwable e) {
    // Nothing that could be done about it would be safe in a JVM of somebody else.
  }
}

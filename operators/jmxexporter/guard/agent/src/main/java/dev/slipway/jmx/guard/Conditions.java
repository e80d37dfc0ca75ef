package dev.slipway.jmx.guard;

import java.lang.reflect.InvocationTargetException;
import java.security.AllPermission;
import java.security.Permission;
import java.util.Map;

/** What a JVM must have before an engine is loaded into it. */
final class Conditions {
  private static final String[][] NEEDED = {
    {"java.lang.management.ManagementFactory", "java.management"},
    {"java.beans.IntrospectionException", "java.desktop"},
    {"java.util.logging.Logger", "java.logging"},
  };

  private Conditions() {}

  static void check(Map<String, String> request) throws Refusal {
    checkModules();
    checkSecurityManager();
    Headroom.check(request);
  }

  private static void checkModules() throws Refusal {
    StringBuilder missing = new StringBuilder();
    for (String[] needed : NEEDED) {
      try {
        Class.forName(needed[0], false, null);
      } catch (ClassNotFoundException | LinkageError e) {
        if (!isLoadedBeside(needed[0])) {
          missing.append(missing.length() == 0 ? "" : ", ").append(needed[1]);
        }
      }
    }
    if (missing.length() > 0) {
      throw new Refusal("MissingModules", "the runtime has no " + missing);
    }
  }

  /** Newer runtimes load some modules with the platform loader, the parent of the system loader. */
  private static boolean isLoadedBeside(String name) {
    try {
      Class.forName(name, false, ClassLoader.getSystemClassLoader().getParent());
      return true;
    } catch (ClassNotFoundException | LinkageError e) {
      return false;
    }
  }

  /** Accepts a manager that lets us do everything: the one of Cassandra restricts functions of users alone. */
  private static void checkSecurityManager() throws Refusal {
    try {
      // By name: the methods are to go from the JDK.
      Object manager = System.class.getMethod("getSecurityManager").invoke(null);
      if (manager != null) {
        Class.forName("java.lang.SecurityManager")
            .getMethod("checkPermission", Permission.class)
            .invoke(manager, new AllPermission());
      }
    } catch (InvocationTargetException e) {
      throw new Refusal("SecurityManagerPresent", "a SecurityManager is set, which would stop the endpoint");
    } catch (ReflectiveOperationException e) {
      // A runtime without security managers.
    }
  }
}

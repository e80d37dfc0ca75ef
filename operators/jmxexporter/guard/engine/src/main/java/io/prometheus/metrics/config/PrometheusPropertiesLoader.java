package io.prometheus.metrics.config;

/**
 * Replaces the loader of the library: the system properties of the JVM configure the library of the application.
 */
public final class PrometheusPropertiesLoader {
  private PrometheusPropertiesLoader() {}

  /** Returns the defaults. */
  public static PrometheusProperties load() {
    return PrometheusProperties.builder().build();
  }
}

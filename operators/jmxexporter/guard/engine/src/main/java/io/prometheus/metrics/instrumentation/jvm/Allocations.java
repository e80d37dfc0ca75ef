package io.prometheus.metrics.instrumentation.jvm;

import io.prometheus.metrics.model.registry.PrometheusRegistry;
import java.io.Closeable;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import javax.management.ListenerNotFoundException;
import javax.management.NotificationEmitter;
import javax.management.NotificationListener;

/** The metrics of allocation, whose listeners of the garbage collector are removed again. */
public final class Allocations implements Closeable {
  private final List<NotificationListener> listeners = new ArrayList<>();

  /** Registers the metrics. */
  public Allocations(PrometheusRegistry registry) {
    List<GarbageCollectorMXBean> watched = new ArrayList<>();
    for (GarbageCollectorMXBean bean : ManagementFactory.getGarbageCollectorMXBeans()) {
      if (bean instanceof NotificationEmitter) {
        watched.add(watch(bean));
      }
    }
    JvmMemoryPoolAllocationMetrics.builder().withGarbageCollectorBeans(watched).register(registry);
  }

  /** The library registers a listener that it does not reveal. */
  private GarbageCollectorMXBean watch(GarbageCollectorMXBean bean) {
    Class<?>[] types = {GarbageCollectorMXBean.class, NotificationEmitter.class};
    return (GarbageCollectorMXBean)
        Proxy.newProxyInstance(
            Allocations.class.getClassLoader(),
            types,
            (proxy, method, arguments) -> {
              if (method.getName().equals("addNotificationListener")) {
                listeners.add((NotificationListener) arguments[0]);
              }
              try {
                return method.invoke(bean, arguments);
              } catch (InvocationTargetException e) {
                throw e.getCause();
              }
            });
  }

  @Override
  public void close() {
    for (GarbageCollectorMXBean bean : ManagementFactory.getGarbageCollectorMXBeans()) {
      for (NotificationListener listener : listeners) {
        try {
          ((NotificationEmitter) bean).removeNotificationListener(listener);
        } catch (ListenerNotFoundException | ClassCastException e) {
          // It was added to another collector.
        }
      }
    }
  }
}

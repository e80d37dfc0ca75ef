package dev.slipway.jmx.sample;

import java.lang.management.ManagementFactory;
import java.math.BigInteger;
import java.util.Collections;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.management.Attribute;
import javax.management.AttributeList;
import javax.management.DynamicMBean;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanException;
import javax.management.MBeanInfo;
import javax.management.ObjectName;

/** Beans with names and values that are hard to export, for tests. */
final class Zoo {
  private Zoo() {}

  /** What open types make of maps. */
  public interface NestedMXBean {
    /**
     * Returns a map.
     *
     * @return counts by name
     */
    Map<String, Long> getCounts();
  }

  static void open() throws Exception {
    Map<String, Object> values = new LinkedHashMap<>();
    values.put("NotANumber", Double.NaN);
    values.put("Endless", Double.POSITIVE_INFINITY);
    values.put("Huge", BigInteger.TEN.pow(30));
    values.put("Largest", Long.MAX_VALUE);
    values.put("Yes", true);
    values.put("When", new Date(1_700_000_000_123L));
    values.put("Text", "17");
    values.put("Nothing", null);
    values.put("Throws", new IllegalStateException("no value"));
    values.put("requests_total", 1L);
    values.put("about_info", 2L);
    values.put("since_created", 3L);
    values.put("some_bucket", 4L);
    values.put("a.b-c", 5L);
    values.put("größe", 6L);
    values.put("9lives", 7L);
    values.put("camelCaseName", 8L);
    for (String name :
        new String[] {
          "zoo:type=Plain",
          "zoo:name=first,type=Order",
          "zoo.sub-domain:type=A B,name=" + ObjectName.quote("a,b=c:\"q\"\n é"),
          "größe:type=Ünï,name=値",
          "zoo:type=Same,x-1=v",
          "zoo:type=Topic,name=records-total,topic=orders,partition=3",
        }) {
      ManagementFactory.getPlatformMBeanServer().registerMBean(new Cage(values), new ObjectName(name));
    }
    // The collector makes no labels of the attributes of a bean that has a null among them.
    values = new LinkedHashMap<>(values);
    values.remove("Nothing");
    ManagementFactory.getPlatformMBeanServer().registerMBean(new Cage(values), new ObjectName("zoo:type=Kept"));
    NestedMXBean nested = () -> Collections.singletonMap("b \"q\" \\ é", 2L);
    ManagementFactory.getPlatformMBeanServer()
        .registerMBean(new javax.management.StandardMBean(nested, NestedMXBean.class, true), new ObjectName("zoo:type=Nested"));
  }

  static void crowd(int beans) throws Exception {
    for (int bean = 0; bean < beans; bean++) {
      Map<String, Object> values = new LinkedHashMap<>();
      for (int attribute = 0; attribute < 10; attribute++) {
        values.put("Attribute" + attribute, (long) bean + attribute);
      }
      String name = "crowd:type=Thing,name=thing-" + bean + ",topic=orders-" + bean % 100 + ",partition=" + bean % 37;
      ManagementFactory.getPlatformMBeanServer().registerMBean(new Cage(values), new ObjectName(name));
    }
  }

  /** A bean with any attributes. */
  private static final class Cage implements DynamicMBean {
    private final Map<String, Object> values;

    Cage(Map<String, Object> values) {
      this.values = values;
    }

    @Override
    public Object getAttribute(String name) throws MBeanException {
      Object value = values.get(name);
      if (value instanceof Exception) {
        throw new MBeanException((Exception) value);
      }
      return value;
    }

    @Override
    public AttributeList getAttributes(String[] names) {
      AttributeList found = new AttributeList();
      for (String name : names) {
        try {
          found.add(new Attribute(name, getAttribute(name)));
        } catch (MBeanException e) {
          // As the interface demands, it is left out.
        }
      }
      return found;
    }

    @Override
    public void setAttribute(Attribute attribute) {}

    @Override
    public AttributeList setAttributes(AttributeList attributes) {
      return attributes;
    }

    @Override
    public Object invoke(String name, Object[] arguments, String[] signature) {
      return null;
    }

    @Override
    public MBeanInfo getMBeanInfo() {
      MBeanAttributeInfo[] attributes =
          values.entrySet().stream()
              .map(each -> new MBeanAttributeInfo(each.getKey(), typeOf(each.getValue()), "the " + each.getKey(), true, false, false))
              .toArray(MBeanAttributeInfo[]::new);
      return new MBeanInfo("Cage", "a bean", attributes, null, null, null);
    }

    private static String typeOf(Object value) {
      return value == null ? "java.lang.Object" : value.getClass().getName();
    }
  }
}

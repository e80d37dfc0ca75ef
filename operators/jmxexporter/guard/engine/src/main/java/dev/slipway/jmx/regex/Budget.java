package dev.slipway.jmx.regex;

import java.util.IdentityHashMap;
import java.util.Map;

/**
 * The limits of one read of the beans: it may be canceled, and each match of a pattern has a number of steps.
 *
 * <p>Steps and not time: a busy machine must not change what a rule means.
 */
public final class Budget {
  static final int STEPS = 10_000_000;
  private static final ThreadLocal<Budget> CURRENT = new ThreadLocal<>();

  /** A scrape matches each rule with each attribute, one after the other, so a matcher for each pattern is enough. */
  private final Map<Pattern, Matcher> matchers = new IdentityHashMap<>();

  private volatile boolean canceled;

  /** Applies the budget to the calling thread. */
  public void enter() {
    CURRENT.set(this);
  }

  /** Ends the matches of the read: nobody waits for it any more. */
  public void cancel() {
    canceled = true;
  }

  static Budget current() {
    return CURRENT.get();
  }

  Matcher matcherOf(Pattern key, java.util.regex.Pattern pattern) {
    Matcher matcher = matchers.get(key);
    if (matcher == null) {
      matcher = new Matcher(pattern, this);
      matchers.put(key, matcher);
    }
    return matcher;
  }

  void check() {
    if (canceled) {
      throw new Exceeded("nobody waits for the result");
    }
  }

  /** A match that was ended; an error, because the collector continues after an exception. */
  public static final class Exceeded extends Error {
    private static final long serialVersionUID = 1L;

    Exceeded(String message) {
      super(message);
    }
  }
}

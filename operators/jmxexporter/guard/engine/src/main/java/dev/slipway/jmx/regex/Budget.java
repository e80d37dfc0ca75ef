package dev.slipway.jmx.regex;

import java.util.IdentityHashMap;
import java.util.Map;

/**
 * The limits of one read of the beans: it may be canceled, each match of a pattern has a number of steps, and all texts
 * that rules make have a number of characters.
 *
 * <p>Steps and not time: a busy machine must not change what a rule means.
 */
public final class Budget {
  static final int STEPS = 10_000_000;
  private static final ThreadLocal<Budget> CURRENT = new ThreadLocal<>();

  /** A scrape matches each rule with each attribute, one after the other, so a matcher for each pattern is enough. */
  private final Map<Pattern, Matcher> matchers = new IdentityHashMap<>();

  /** An eighth of the heap: a page of them takes some copies, and the rest is the application's. */
  private long charactersLeft = Math.max(8 << 20, Runtime.getRuntime().maxMemory() >> 3);

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

  /** Ends a read whose rules make texts that would fill the heap of the application. */
  void take(long characters, boolean keeps) {
    if (characters > charactersLeft) {
      throw new Exceeded("the names, labels and help of the rules are too long for the heap of this JVM; shorten them");
    }
    charactersLeft -= keeps ? characters : 0;
  }

  /** A match that was ended; an error, because the collector continues after an exception. */
  public static final class Exceeded extends Error {
    private static final long serialVersionUID = 1L;

    Exceeded(String message) {
      super(message);
    }
  }
}

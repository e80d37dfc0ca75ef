package dev.slipway.jmx.regex;

/** What the collector needs of a pattern; its matches have a {@link Budget}. */
public final class Pattern {
  private final java.util.regex.Pattern pattern;

  private Pattern(java.util.regex.Pattern pattern) {
    this.pattern = pattern;
  }

  /** Compiles a pattern. */
  public static Pattern compile(String text) {
    return new Pattern(java.util.regex.Pattern.compile(text));
  }

  /** Prepares a match; during a read of the beans, it ends the use of the matcher before. */
  public Matcher matcher(CharSequence text) {
    Budget budget = Budget.current();
    Matcher matcher = budget == null ? new Matcher(pattern, null) : budget.matcherOf(this, pattern);
    return matcher.reset(text);
  }
}

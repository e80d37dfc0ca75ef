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

  /** Prepares a match. */
  public Matcher matcher(CharSequence text) {
    return new Matcher(pattern, text);
  }
}

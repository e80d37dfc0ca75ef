package dev.slipway.jmx.regex;

/** What the collector needs of a match. */
public final class Matcher {
  private final java.util.regex.Matcher matcher;

  Matcher(java.util.regex.Pattern pattern, CharSequence text) {
    matcher = pattern.matcher(new Text(pattern, text.toString()));
  }

  /** Matches the whole text. */
  public boolean matches() {
    return matcher.matches();
  }

  /** Matches the beginning of the text. */
  public boolean lookingAt() {
    return matcher.lookingAt();
  }

  /** Returns the end of the match. */
  public int end() {
    return matcher.end();
  }

  /** Returns what a group matched. */
  public String group(int group) {
    return matcher.group(group);
  }

  /** Replaces each match. */
  public String replaceAll(String replacement) {
    return matcher.replaceAll(replacement);
  }

  /** Prepares a match of another text. */
  public Matcher reset(CharSequence text) {
    matcher.reset(new Text(matcher.pattern(), text.toString()));
    return this;
  }

  @Override
  public String toString() {
    return matcher.toString();
  }

  /** A text that counts how often it is looked at. */
  private static final class Text implements CharSequence {
    private static final int OFTEN = (1 << 10) - 1;
    private final java.util.regex.Pattern pattern;
    private final String text;
    private final Budget budget = Budget.current();
    private int steps;

    Text(java.util.regex.Pattern pattern, String text) {
      this.pattern = pattern;
      this.text = text;
      check();
    }

    private void check() {
      if (budget != null) {
        budget.check();
      }
      if (steps >= Budget.STEPS) {
        // The collector adds what stands around the pattern, and the value behind the name.
        String rule = shorten(pattern.pattern().replaceFirst("^\\^\\.\\*\\(\\?:(.*)\\)\\.\\*\\$$", "$1"));
        throw new Budget.Exceeded(
            "pattern " + rule + " needs more than " + Budget.STEPS + " steps for "
                + shorten(text.split(": ", 2)[0]) + "; simplify the pattern");
      }
    }

    private static String shorten(String text) {
      return text.length() > 150 ? text.substring(0, 150) + "..." : text;
    }

    @Override
    public int length() {
      return text.length();
    }

    @Override
    public char charAt(int index) {
      if ((++steps & OFTEN) == 0) {
        check();
      }
      return text.charAt(index);
    }

    @Override
    public CharSequence subSequence(int start, int end) {
      return text.substring(start, end);
    }

    @Override
    public String toString() {
      return text;
    }
  }
}

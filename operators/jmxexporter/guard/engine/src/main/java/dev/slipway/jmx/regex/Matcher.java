package dev.slipway.jmx.regex;

/** What the collector needs of a match. */
public final class Matcher {
  private final Text text;
  private final java.util.regex.Matcher matcher;

  Matcher(java.util.regex.Pattern pattern, Budget budget) {
    text = new Text(pattern, budget);
    matcher = pattern.matcher(text);
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
    if (text.budget == null) {
      return matcher.replaceAll(replacement);
    }
    long groups = replacement.chars().filter(each -> each == '$').count();
    text.budget.take(replacement.length() + groups * text.length(), false);
    String result = matcher.replaceAll(replacement);
    text.budget.take(result.length(), true);
    return result;
  }

  /** Prepares a match of another text. */
  public Matcher reset(CharSequence next) {
    text.begin(next.toString());
    matcher.reset();
    return this;
  }

  /** A text that counts how often it is looked at; the same object for each text of a matcher, as there are many. */
  private static final class Text implements CharSequence {
    private static final int OFTEN = (1 << 10) - 1;
    private final java.util.regex.Pattern pattern;
    private final Budget budget;
    private String text = "";
    private int steps;

    Text(java.util.regex.Pattern pattern, Budget budget) {
      this.pattern = pattern;
      this.budget = budget;
    }

    void begin(String next) {
      text = next;
      steps = 0;
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

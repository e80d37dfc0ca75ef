package dev.slipway.jmx.regex;

/** What the collector needs of a match. */
public final class Matcher {
  private final Text text;
  private final java.util.regex.Matcher matcher;
  /** Whether the match that the matcher holds is of the whole text. */
  private boolean whole;

  Matcher(java.util.regex.Pattern pattern, Budget budget) {
    text = new Text(pattern, budget);
    matcher = pattern.matcher(text);
  }

  /** Matches the whole text. */
  public boolean matches() {
    whole = matcher.matches();
    return whole;
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
    long groups = 0;
    for (int at = replacement.indexOf('$'); at >= 0; at = replacement.indexOf('$', at + 1)) {
      groups++;
    }
    text.budget.take(replacement.length() + groups * text.length(), false);
    String filled = whole && !text.endsLine() ? fill(replacement) : null;
    if (filled == null) {
      whole = false;
      filled = matcher.replaceAll(replacement);
    }
    text.budget.take(filled.length(), true);
    return filled;
  }

  /** Fills in the groups of the match that is there, since a rule has several texts; null if only the JDK can. */
  private String fill(String replacement) {
    StringBuilder filled = new StringBuilder();
    for (int at = 0; at < replacement.length(); at++) {
      char each = replacement.charAt(at);
      if (each == '$') {
        int group = digit(replacement, ++at);
        int next = digit(replacement, at + 1);
        if (group < 0 || group > matcher.groupCount() || next >= 0 && group * 10 + next <= matcher.groupCount()) {
          return null;
        }
        String found = matcher.group(group);
        filled.append(found == null ? "" : found);
      } else if (each == '\\') {
        return null;
      } else {
        filled.append(each);
      }
    }
    return filled.toString();
  }

  private static int digit(String text, int at) {
    int found = at < text.length() ? text.charAt(at) - '0' : -1;
    return found > 9 ? -1 : found;
  }

  /** Prepares a match of another text. */
  public Matcher reset(CharSequence next) {
    text.begin(next.toString());
    matcher.reset();
    whole = false;
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

    /** Says whether `$` may match before the end, at which a search then stops. */
    boolean endsLine() {
      return !text.isEmpty() && "\n\r\u0085\u2028\u2029".indexOf(text.charAt(text.length() - 1)) >= 0;
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

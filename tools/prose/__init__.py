"""Checks that text is plain, idiomatic English: a count of known phrases per 1,000 words."""

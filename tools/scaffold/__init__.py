"""`./dev new`: create a working operator from the files of the tutorial."""

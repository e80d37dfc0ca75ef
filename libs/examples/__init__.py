"""Examples of operators that are written with the library."""

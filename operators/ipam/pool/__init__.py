"""IPPool: serves the claims that wait for its addresses."""

"""IPPool: allocates its addresses to waiting claims."""

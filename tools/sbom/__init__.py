"""Bill of materials: which packages an operator's process is made of."""

"""Chart of the operator volumes."""

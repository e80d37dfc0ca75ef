"""Chart of the operator clusters."""

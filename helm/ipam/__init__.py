"""Chart of the operator ipam."""

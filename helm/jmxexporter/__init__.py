"""Chart of the operator podset."""

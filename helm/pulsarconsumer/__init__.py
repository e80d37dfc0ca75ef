"""Chart of the operator pulsarconsumer."""

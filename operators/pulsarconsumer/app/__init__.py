"""The consumer app: receives messages of Pulsar topics, handles and acknowledges them."""

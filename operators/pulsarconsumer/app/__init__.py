"""The consumer app: receives messages of Pulsar topics, has them handled, and acks what was."""

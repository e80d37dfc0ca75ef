"""Everything that two operators need: the runtime, the client, the test kit."""

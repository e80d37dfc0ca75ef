"""Pure decisions of the app: no Pulsar client, no clock, no threads."""

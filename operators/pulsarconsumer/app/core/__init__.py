"""What the app decides, without Pulsar: no client, no clock, no threads."""

"""A small guest for the demo and tests: Linux, qemu-guest-agent, SSH and NoCloud in 42 MiB."""

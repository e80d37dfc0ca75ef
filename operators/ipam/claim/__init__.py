"""IPClaim: reports the address of a claim and routes it to its target."""

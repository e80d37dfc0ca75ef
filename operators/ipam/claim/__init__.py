"""IPClaim: shows the address of a claim and leads it to its target."""

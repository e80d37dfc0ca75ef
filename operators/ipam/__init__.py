"""The ipam operator: addresses are given from pools, and follow what they lead to."""

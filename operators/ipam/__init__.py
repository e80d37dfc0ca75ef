"""The ipam operator: allocates addresses from pools and routes their traffic to targets."""

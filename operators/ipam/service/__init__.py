"""Services of the load balancer class of ipam get an address of a pool."""

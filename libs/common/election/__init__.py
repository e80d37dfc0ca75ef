"""Leader election by a Lease: one replica is active, the others stand by with warm caches."""

"""What proves the product: simulators, fault sweeps, soak tests, benchmarks."""

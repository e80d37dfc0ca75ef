"""Long runs: churn for minutes on a real API server, and consumers with a real broker."""

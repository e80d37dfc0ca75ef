"""Long runs: churn for minutes on a real API server, and the death of real nodes' parts on kind."""

"""Network: isolates and attaches the instances that name it, and resolves their routes."""

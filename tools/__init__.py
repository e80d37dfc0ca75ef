"""Tools of the repository: the cluster, code generation, the gate, releases."""

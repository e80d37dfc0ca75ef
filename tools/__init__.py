"""Tools of the repository: the cluster, code generation, benchmarks, the gate."""

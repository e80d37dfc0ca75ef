"""From a bare machine to a kind cluster, and to the binaries that tests run against."""

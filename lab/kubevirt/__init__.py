"""The real KubeVirt and CDI on a kind cluster: `./dev up --with kubevirt`."""

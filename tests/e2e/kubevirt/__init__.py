"""End-to-end tests on the real KubeVirt: `./dev test --only e2e-kubevirt`."""

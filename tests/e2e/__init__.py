"""Black-box tests on a kind cluster: images, charts and real manifests, by the API alone."""

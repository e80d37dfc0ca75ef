"""Virtual machines through KubeVirt, and operations on them."""

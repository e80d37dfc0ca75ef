"""Instance: manages a VirtualMachine of KubeVirt with its disk, its settings and its address."""

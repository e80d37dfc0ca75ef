"""Cases that hold for the simulator and for the real KubeVirt and CDI alike."""

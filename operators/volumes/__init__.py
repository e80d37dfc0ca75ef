"""Operator of DemoVolume: a volume that becomes a PersistentVolumeClaim and is kept safe."""

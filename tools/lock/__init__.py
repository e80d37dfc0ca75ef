"""The lockfile: every dependency, pinned by hash, for Pants and for pip alike."""

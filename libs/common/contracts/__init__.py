"""Typed, tolerant views of kinds that belong to other people: claims, classes, snapshots, pods."""

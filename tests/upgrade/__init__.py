"""Upgrades from the previous release, and rollbacks to it."""

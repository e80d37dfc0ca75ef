"""Firewall: rules, compiled to a NetworkPolicy for the instances that name it."""

"""Firewall: compiles rules to a NetworkPolicy for the instances that name the Firewall."""

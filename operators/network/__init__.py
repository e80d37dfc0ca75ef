"""Operator of Network and Firewall: what may reach virtual machines, and where packets go."""

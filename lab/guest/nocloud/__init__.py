"""The part of cloud-init that the guest needs: NoCloud user data, network data and SSH keys.

It runs inside the guest with the standard library and PyYAML, and nothing else of this repository.
"""

"""The kinds of ipam.slipway.dev/v1alpha1: pools, the ledger, and claims."""

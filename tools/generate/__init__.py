"""The generator: CRDs, RBAC, chart values and reference pages from models, settings and rules."""

"""`kubectl slipway`: the kubectl plugin for all Slipway operators.

The package uses only kubectl, the standard library and PyYAML, and imports no code of the
operators. It talks only to the API server, so one version works with operators of other versions.
Its knowledge of kinds is data (`kinds.json`, generated); a kind without data is diagnosed by its
conditions.

Layers, from the edge to the core: `commands` (what a user types), `cluster` (reads the cluster),
`discovery`, `api` and `kubectl` (HTTP), `operators`, `diagnosis` and `model` (pure functions).
"""

__version__ = "0.1.0"

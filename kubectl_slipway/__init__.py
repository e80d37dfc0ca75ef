"""`kubectl slipway`: the kubectl plugin for all Slipway operators.

The package uses the standard library and PyYAML only, and imports nothing of the operators. It
talks to the API server alone, so one version works with operators of other versions. What it knows
about kinds is data (`kinds.json`, generated); a kind without data is diagnosed by its conditions.

Layers, from the edge to the core: `commands` (what a user types), `gather` (reads the cluster),
`api`, `kubeconfig` and `discovery` (HTTP), `operators`, `diagnosis` and `model` (pure functions).
"""

__version__ = "0.1.0"

"""The gate: everything that must hold before a change lands, as `./dev test` and CI run it."""

"""Level-triggered controller runtime: sources, store, queue, controllers, manager."""

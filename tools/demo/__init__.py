"""The demo: operators installed, example objects applied and watched until they are Ready."""

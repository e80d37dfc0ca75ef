"""The operators that a cloud runs itself with, on simulated machines."""

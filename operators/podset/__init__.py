"""The PodSet operator: keeps a number of identical pods running."""

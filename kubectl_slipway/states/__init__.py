"""Broken states, and how `why` names each of them."""

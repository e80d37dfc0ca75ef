"""The demo on this machine: an API server, simulated nodes and real operators, all as processes.

`host.py` is the process that runs everything else; `demo.py` starts it and shows what happens.
"""

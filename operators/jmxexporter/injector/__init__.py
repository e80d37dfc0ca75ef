"""The program of the ephemeral container: puts the exporter into JVMs; standard library only."""

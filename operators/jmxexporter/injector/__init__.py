"""The program of the ephemeral container: adds the exporter to JVMs. Standard library only."""

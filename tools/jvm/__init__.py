"""What is loaded into JVMs, built from Java, and runtimes to try it on."""

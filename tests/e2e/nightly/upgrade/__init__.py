"""The previous release, and what users of each operator run through an upgrade and a rollback."""

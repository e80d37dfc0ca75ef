"""The documentation site: the Markdown of the repository, rendered by mkdocs-material."""

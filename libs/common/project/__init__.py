"""Projects: files generated from the code of an operator, and templates of new projects."""

"""Projects: what is generated from the code of an operator, and a new project to begin with."""

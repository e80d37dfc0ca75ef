"""Operation: a task on an Instance that is carried out exactly once, even after crashes."""

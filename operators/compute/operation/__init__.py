"""Operation: a task on an Instance that is done once, whatever crashes meanwhile."""

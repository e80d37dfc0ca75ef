"""Why an object is not ready: facts in, findings out. Pure."""

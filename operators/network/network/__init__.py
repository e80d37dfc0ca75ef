"""Network: the isolation, the attachment and the routes of the instances that name it."""

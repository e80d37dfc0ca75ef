"""Security: the checklist, and the checks that no other suite has."""

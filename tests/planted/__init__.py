"""Small operators with planted bugs, which show what the sweep of any operator finds.

The variable BUG chooses a bug; without it, the operators are correct. They use nothing of this
repository, as an operator of somebody else.
"""

"""Token budgets, which drop parts of a conversation that is too long. Read budget.py first."""

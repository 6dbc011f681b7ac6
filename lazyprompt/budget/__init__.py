"""Budgets: which parts of a conversation are dropped so that it fits, and a report. Read budget.py first."""

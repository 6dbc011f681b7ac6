"""Budgets: what of a conversation has to go so that it fits, and an account of it."""

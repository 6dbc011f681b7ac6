"""Readers of histories: one file per form, and the table that chooses among them."""

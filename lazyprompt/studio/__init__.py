"""A page on this machine that shows a prompt while it is written. Read app.py first."""

"""A local page that shows a prompt while it is being written. Read app.py first."""

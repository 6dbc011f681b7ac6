"""The command line: commands in files by their subject. Read main.py first."""

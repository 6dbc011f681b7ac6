"""The command line: one file for each command. Read main.py first."""

"""The command-line interface, with one module for each command. Read main.py first."""

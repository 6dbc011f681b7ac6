"""The command line: one file per command, which turns options into library calls; read ``main.py`` first."""

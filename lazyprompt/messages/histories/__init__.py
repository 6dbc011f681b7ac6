"""Readers of histories, one file for each form. Read read.py first."""

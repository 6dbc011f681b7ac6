"""Clients for hosted models and local inference engines. Read online.py first."""

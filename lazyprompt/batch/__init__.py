"""Batch processing: each row of data becomes an output line or is sent to a model. Read render.py first."""

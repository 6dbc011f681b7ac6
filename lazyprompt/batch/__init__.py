"""Bulk work: rows of data in, a line of output for each."""

"""The dialects of prompt files: one file each, and the table of them."""

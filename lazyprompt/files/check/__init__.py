"""What is wrong with a prompt file, or may be."""

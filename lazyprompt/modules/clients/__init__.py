"""The official clients, one file each: what is theirs alone."""

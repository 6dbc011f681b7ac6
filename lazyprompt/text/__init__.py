"""Everything that makes a flat string: slots, instructions, templates, markers and their safety."""

"""Messages, histories, tools and prompts: the values that all other folders pass on. Read msg.py first."""

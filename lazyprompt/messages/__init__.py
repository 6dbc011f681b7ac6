"""The value types for messages, histories, tools and prompts. Read msg.py first."""

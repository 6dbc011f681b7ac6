"""TODO: chat_templates."""

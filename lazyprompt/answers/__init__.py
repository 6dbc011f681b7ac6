"""What a local model wrote, read back: text, thinking and tool calls, whole or while it is being written."""

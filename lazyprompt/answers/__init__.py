"""Answers of local models: text, thoughts and tool calls, read whole or piece by piece. Read parser.py first."""

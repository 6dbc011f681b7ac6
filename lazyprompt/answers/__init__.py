"""Parsers for local models' responses: text, reasoning and tool calls, whole or streamed. Read parser.py first."""

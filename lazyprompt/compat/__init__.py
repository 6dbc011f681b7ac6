"""Drop-in replacements for the APIs of other prompt libraries. Read agentscope.py first."""

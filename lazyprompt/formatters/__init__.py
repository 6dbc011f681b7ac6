"""Every provider's payload from one list of messages."""

"""The words by which a tuple of LangChain is told from a pair of question and answer."""

LANGCHAIN_WORDS = frozenset(
    {"human", "user", "ai", "assistant", "system", "developer", "tool", "function", "placeholder"}
)
"""The first items of LangChain's tuples ``(role, content)``."""

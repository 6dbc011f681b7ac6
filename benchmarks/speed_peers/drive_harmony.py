"""openai-harmony: the tokens of gpt-oss."""

from __future__ import annotations

from driven import drive

if __name__ == "__main__":
    drive("openai-harmony", [], "it makes token ids of gpt-oss alone: no row is the same work")

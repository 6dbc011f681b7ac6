"""mistral-common: its own tokens for its own models."""

from __future__ import annotations

from driven import drive

if __name__ == "__main__":
    drive(
        "mistral-common",
        [],
        "it makes token ids of its own models alone, with its own vocabularies: no row is the same work",
    )

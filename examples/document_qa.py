"""Questions about a long document: one prompter, a flat string for a local model, messages for an online one.

python examples/document_qa.py
python examples/document_qa.py "Who owns the copyright of a contribution?"
"""

import json
import re
import sys
from pathlib import Path

from lazyprompt import ChatPrompter

DOCUMENT = Path(__file__).parents[1] / "LICENSE"

prompter = ChatPrompter(
    {
        "system": "You answer questions about one document. Quote the section you rely on; say so if it is not there.",
        "user": "<document>\n{document}\n</document>\n\nQuestion: {question}",
    },
    system="",
)


def relevant(question: str, keep: int = 2) -> str:
    """Return the sections of the document that share the most words with the question, in the document's order."""
    sections = re.split(r"\n(?=   \d\. )", DOCUMENT.read_text(encoding="utf-8").partition("END OF TERMS")[0])[1:]
    words = set(re.findall(r"\w{4,}", question.lower()))
    best = sorted(sections, key=lambda section: -len(words & set(re.findall(r"\w{4,}", section.lower()))))[:keep]
    return "\n".join(section.rstrip() for section in sections if section in best)


def main(question: str) -> None:
    """Print the prompt for a local model, then the one for an online model."""
    values = {"document": relevant(question), "question": question}

    print("--- flat text, as Qwen2.5 was trained on ---")
    print(prompter.generate_prompt(values, model="qwen2.5"))

    print("--- OpenAI messages ---")
    print(json.dumps(prompter.generate_prompt(values, return_dict=True), ensure_ascii=False, indent=2))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "May I use the trade names of the Licensor, and who gives a warranty?")

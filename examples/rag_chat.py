"""Retrieval-augmented chat: passages are looked up for each question, and the answer streams with its sources.

python -m pip install ".[openai]"                in a checkout
python examples/rag_chat.py                      with a stand-in for the model
OPENAI_API_KEY=... python examples/rag_chat.py   with a provider's model
"""

import re

from lazyprompt import ChatPrompter, OnlineChatModule
from stand_in import provider

PASSAGES = {
    "hours": "The library is open from 9:30 to 18:00 on weekdays, from 10:00 to 16:00 on Saturday, never on Sunday.",
    "cards": "A library card is free for pupils and costs 12 pounds a year for adults. Bring a proof of your address.",
    "loans": "Books are lent for four weeks and can be renewed twice. A late book costs 20 pence a day.",
    "rooms": "Study rooms can be booked for two hours. Booking a room takes a library card.",
}
# The passages are data: whatever they say, they can open no turn and no slot.
PROMPTER = ChatPrompter(
    {
        "system": "You answer readers of a library from the passages you are given. Name the passage in brackets. "
        "Say so if the answer is not there.",
        "user": "<passages>\n{passages}\n</passages>\n\nQuestion: {question}",
    },
    system="",
)
QUESTIONS = ("What does a library card cost?", "And for pupils?", "Can I book a study room on Sunday?")
ANSWERS = (
    "It costs 12 pounds a year for adults [cards].",
    "It is free for pupils [cards].",
    "A study room can be booked with a card [rooms], but the library is never open on Sunday [hours].",
)


def words_of(text: str) -> set[str]:
    """Return the words of a text that say what it is about."""
    return set(re.findall(r"\w{4,}", text.lower()))


def search(query: str, most: int = 2) -> list[str]:
    """Return the names of the passages that share the most words with a query; put your own search here."""
    shared = {name: len(words_of(query) & words_of(text)) for name, text in PASSAGES.items()}
    return sorted((name for name in PASSAGES if shared[name]), key=lambda name: -shared[name])[:most]


def main() -> None:
    """Ask three questions, the second of which makes sense only after the first."""
    # Questions and answers, without the passages of earlier turns: the prompt stays short.
    history: list[list[str]] = []
    with provider(*ANSWERS) as connection:
        module = OnlineChatModule("openai", **connection).prompt(PROMPTER)
        for question in QUESTIONS:
            # A question may lean on the one before it ("And for pupils?"), so both are looked up.
            found = search(" ".join([*(asked for asked, _ in history[-1:]), question]))
            passages = "\n".join(f"[{name}] {PASSAGES[name]}" for name in found)
            print(f"reader:   {question}")
            print(f"passages: {', '.join(found)}")
            print("answer:   ", end="")
            stream = module.stream({"passages": passages, "question": question}, history)
            for piece in stream:
                print(piece, end="", flush=True)
            print("\n")
            history.append([question, str(stream.reply)])
    print("--- the messages that a fourth question would be sent with ---")
    values = {"passages": "[loans] " + PASSAGES["loans"], "question": "How long may I keep a book?"}
    for message in module.payload(values, history)["messages"]:
        print(f"{message['role']}: {message['content']}")


if __name__ == "__main__":
    main()

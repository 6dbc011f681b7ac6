"""A long chat within a token budget: old turns are dropped seldom, and many at once.

So the prompt begins with the same messages for many turns, and a provider's prompt cache keeps hitting.

python examples/long_chat.py
"""

from lazyprompt import Budget, ChatFormatter, Msg

SYSTEM = Msg("system", "You answer customers of a library in their own language. 请用顾客的语言回答。", "system")
QUESTIONS = ("When do you open on day {day}?", "{day}号几点开门？")
ANSWERS = (
    "On day {day} we open at {hour} in the morning and close at six in the evening.",
    "{day}号上午{hour}点开门，下午六点关门。",
)


def chat(turns: int) -> list[Msg]:
    """Return a conversation of this many turns, and a question."""
    messages = [SYSTEM]
    for turn in range(turns):
        values = {"day": turn + 1, "hour": 8 + turn % 3}
        messages.append(Msg("user", QUESTIONS[turn % 2].format(**values), "user"))
        messages.append(Msg("assistant", ANSWERS[turn % 2].format(**values), "assistant"))
    return [*messages, Msg("user", "And tomorrow? 那明天呢？", "user")]


def main() -> None:
    """Print the messages that are sent at each turn."""
    # About 600 tokens; 100 of them are left for the answer.
    formatter = ChatFormatter("anthropic", budget=Budget(600, reserve=100))
    for turns in range(5, 41, 5):
        messages = chat(turns)
        payload = formatter.format(messages)
        sent, report = payload["messages"], payload.trim
        # The first of them is the system text, which is never dropped.
        print(f"{turns:2} turns: {len(sent)} of {len(messages) - 1} messages, from {sent[0]['content']!r}")
    print(f"the last one: {report}")


if __name__ == "__main__":
    main()

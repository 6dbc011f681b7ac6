"""A chat that goes on and on, in Chinese and English, kept within a budget so that a provider's cache keeps hitting.

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
    """So many turns of a chat."""
    messages = [SYSTEM]
    for turn in range(turns):
        values = {"day": turn + 1, "hour": 8 + turn % 3}
        messages.append(Msg("user", QUESTIONS[turn % 2].format(**values), "user"))
        messages.append(Msg("assistant", ANSWERS[turn % 2].format(**values), "assistant"))
    return [*messages, Msg("user", "And tomorrow? 那明天呢？", "user")]


def main() -> None:
    """Print what each turn sends: the cut stays where it is for many turns."""
    # 600 tokens, about, of which 100 are left for the answer.
    formatter = ChatFormatter("anthropic", budget=Budget(600, policy="cache", reserve=100))
    for turns in range(5, 41, 5):
        payload = formatter.format(chat(turns))
        first = payload["messages"][0]["content"]
        print(f"turn {turns}: {payload.trim}; begins with {first!r}")


if __name__ == "__main__":
    main()

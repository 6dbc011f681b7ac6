"""A conversation of several turns, in Chinese and in English, with one prompter for each language.

python examples/chat.py
"""

from lazyprompt import ChatPrompter

PROMPTERS = {
    "zh": ChatPrompter("你是{city}图书馆的馆员,请用中文简短回答。", system=""),
    "en": ChatPrompter("You are a librarian at the {city} library. Answer briefly.", system=""),
}
HISTORY = {
    "zh": [["你好", "您好,请问需要什么帮助?"], ["周六开门吗?", "开门,上午十点到下午四点。"]],
    "en": [["Hello", "Hello, how can I help?"], ["Are you open on Saturday?", "Yes, from ten to four."]],
}
QUESTION = {"zh": "那周日呢?", "en": "And on Sunday?"}
CITY = {"zh": "杭州", "en": "Leeds"}


def main() -> None:
    """Print the same conversation for two model families, and as messages."""
    for language, prompter in PROMPTERS.items():
        # Each key is a slot but `input`, which is what the user says.
        values = {"city": CITY[language], "input": QUESTION[language]}
        for model in ("qwen2.5", "glm-4"):
            print(f"--- {language}, {model} ---")
            print(prompter.generate_prompt(values, HISTORY[language], model=model))
        for message in prompter.generate_prompt(values, HISTORY[language], return_dict=True)["messages"]:
            print(message)


if __name__ == "__main__":
    main()

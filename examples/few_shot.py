"""Worked examples before the question: as one text, and as earlier turns of a chat.

python examples/few_shot.py
"""

from lazyprompt import ChatPrompter, FewShotTemplate

EXAMPLES = [
    {"request": "all users older than 30", "query": '{"age": {"$gt": 30}}'},
    {"request": "users named Wang or Li", "query": '{"name": {"$in": ["Wang", "Li"]}}'},
]

# The braces of the examples are data: no slot is in them.
few_shot = FewShotTemplate(
    prefix="Write a query for {collection}. Answer with JSON only.",
    examples=EXAMPLES,
    example_template="Request: {request}\nQuery: {query}",
    suffix="Request: {request}\nQuery:",
    separator="\n\n",
)

chat = ChatPrompter(
    "Write a query for {collection}. Answer with JSON only.",
    system="",
    history=[[example["request"], example["query"]] for example in EXAMPLES],
)


def main() -> None:
    """Print both forms."""
    request = "users who joined after 2024"
    print("--- one text ---")
    print(few_shot.render(collection="users", request=request))
    print("--- turns of a chat, for Llama 3 ---")
    print(chat.generate_prompt({"collection": "users", "input": request}, model="llama-3"))


if __name__ == "__main__":
    main()

"""LangChain and lazyprompt in one program, both ways: prompts, messages and models.

python -m pip install ".[openai]" langchain-core        in a checkout
python examples/langchain_interop.py                    with a stand-in for the model
OPENAI_API_KEY=... python examples/langchain_interop.py with a provider's model
"""

from typing import Any

from lazyprompt import ChatFormatter, ChatPrompter, OnlineChatModule
from stand_in import exit_if_missing, provider

with exit_if_missing("langchain-core"):
    from langchain_core.language_models import FakeListChatModel
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompt_values import PromptValue
    from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
    from langchain_core.runnables import RunnableLambda


def lazyprompt_model_in_a_chain(module: OnlineChatModule) -> None:
    """Put a module of lazyprompt between a template and a parser of LangChain."""

    def ask(prompt: PromptValue) -> AIMessage:
        # LangChain's messages are read as they are; the last one waits for the answer.
        return AIMessage(str(module(history=prompt.to_messages())))

    template = ChatPromptTemplate.from_messages(
        [("system", "You translate into {language}."), MessagesPlaceholder("history"), ("human", "{text}")]
    )
    chain = template | RunnableLambda(ask) | StrOutputParser()
    history = [HumanMessage("Good morning"), AIMessage("Bonjour")]
    print(chain.invoke({"language": "French", "history": history, "text": "Good night"}))


def lazyprompt_prompter_in_a_chain() -> None:
    """Put a prompter of lazyprompt before a model of LangChain (here one that repeats a list)."""
    prompter = ChatPrompter({"system": "You translate into {language}.", "user": "{text}"}, system="")

    def prompt(values: dict[str, Any]) -> list[BaseMessage]:
        return convert_to_messages(prompter.generate_prompt(values, return_dict=True)["messages"])

    chain = RunnableLambda(prompt) | FakeListChatModel(responses=["Goedenacht"]) | StrOutputParser()
    print(chain.invoke({"language": "Dutch", "text": "Good night"}))


def conversation_there_and_back(module: OnlineChatModule) -> None:
    """Begin a conversation with LangChain's messages, go on with lazyprompt, and take it back."""
    chat = module.share("Answer briefly.").chat(history=[HumanMessage("My name is Ada."), AIMessage("Hello, Ada.")])
    chat("What is my name?")
    for message in convert_to_messages(ChatFormatter("openai").format(*chat.history)["messages"]):
        print(f"{type(message).__name__}: {message.content}")


def main() -> None:
    """Go through the three ways."""
    with provider("Bonne nuit", "Your name is Ada.") as connection:
        # None: the messages are LangChain's, and nothing is put around them.
        module = OnlineChatModule("openai", **connection).prompt(None)
        print("--- LangChain's template and parser, lazyprompt's model ---")
        lazyprompt_model_in_a_chain(module)
        print("--- lazyprompt's prompter, LangChain's model and parser ---")
        lazyprompt_prompter_in_a_chain()
        print("--- a conversation, there and back ---")
        conversation_there_and_back(module)


if __name__ == "__main__":
    main()

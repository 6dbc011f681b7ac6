"""Examples that the documents print."""

import pytest

from lazyprompt import AlpacaPrompter, ChatPrompter, ToolsError
from support.paths import GOLDEN

TOOLS = [{"type": "function", "function": {"name": "example"}}]
DOCUMENT_QA = "你是一个知识问答助手。上下文信息是{context},用户的问题是{input},现在请你做出回答。"
WEATHER = "你是一个工具调用的助手,请选择最合适的工具"
FRIENDLY = "你是一个对话机器人"
GREETING = [["你好", "你好,有什么能为您服务的"]]


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def test_alpaca_takes_a_user_instruction_alone_as_the_instruction() -> None:
    prompter = AlpacaPrompter({"user": DOCUMENT_QA})
    values = {"context": "背景", "input": "输入"}
    assert prompter.generate_prompt(values) == golden("alpaca_document_qa.txt")
    assert prompter.generate_prompt(values, return_dict=True) == {
        "messages": [
            {"role": "system", "content": golden("alpaca_document_qa.txt").removesuffix("\n### Response:\n")},
            {"role": "user", "content": ""},
        ]
    }


def test_alpaca_puts_extra_keys_under_headers() -> None:
    assert AlpacaPrompter("请完成加法运算", extro_keys="input").generate_prompt("a+b") == golden(
        "alpaca_extra_keys.txt"
    )


def test_alpaca_describes_tools_wherever_they_are_given() -> None:
    expected = golden("alpaca_tools.txt")
    assert AlpacaPrompter(WEATHER, extra_keys=["input"], tools=TOOLS).generate_prompt("今天的天气") == expected
    assert AlpacaPrompter(WEATHER, extra_keys=("input",)).generate_prompt("今天的天气", tools=TOOLS) == expected


def test_alpaca_sends_tools_beside_the_messages() -> None:
    made = AlpacaPrompter(WEATHER, extra_keys="input", tools=TOOLS).generate_prompt("今天的天气", format="openai")
    assert made["tools"] == TOOLS
    assert made["messages"] == [
        {"role": "system", "content": golden("alpaca_tools.txt").partition("\n### Function-call")[0]},
        {"role": "user", "content": ""},
    ]


def test_chat_fills_its_only_slot_with_a_string() -> None:
    assert ChatPrompter("请完成加法运算,输入为{input}").generate_prompt("a+b") == golden("chat_one_slot.txt")


def test_chat_takes_a_string_as_what_the_user_says_where_there_is_no_slot() -> None:
    assert ChatPrompter("请完成加法运算").generate_prompt("a+b") == golden("chat_no_slot.txt")


def test_chat_describes_tools_in_the_system_turn() -> None:
    expected = golden("chat_tools.txt")
    assert ChatPrompter(WEATHER, tools=TOOLS).generate_prompt("今天的天气") == expected
    assert ChatPrompter(WEATHER).generate_prompt("今天的天气", tools=TOOLS) == expected


def test_tools_at_construction_forbid_tools_at_the_call() -> None:
    prompter = ChatPrompter(WEATHER, tools=TOOLS)
    with pytest.raises(ToolsError, match="example"):
        prompter.generate_prompt("今天的天气", tools=TOOLS)


def test_history_as_flat_text() -> None:
    prompter = ChatPrompter(FRIENDLY)
    expected = golden("chat_history.txt")
    assert prompter.generate_prompt("聊会儿天吧", history=GREETING) == expected
    as_dicts = [{"role": "user", "content": GREETING[0][0]}, {"role": "assistant", "content": GREETING[0][1]}]
    assert prompter.generate_prompt("聊会儿天吧", history=as_dicts) == expected


def test_history_as_messages() -> None:
    prompter = ChatPrompter(FRIENDLY)
    turns = [{"role": "user", "content": GREETING[0][0]}, {"role": "assistant", "content": GREETING[0][1]}]
    system = {"role": "system", "content": f"You are an AI-Agent developed by LazyLLM.\n{FRIENDLY}\n\n"}
    expected = {"messages": [system, *turns, {"role": "user", "content": "聊会儿天吧"}]}
    assert prompter.generate_prompt("聊会儿天吧", history=GREETING, return_dict=True) == expected
    assert prompter.generate_prompt("聊会儿天吧", history=turns, return_dict=True) == expected

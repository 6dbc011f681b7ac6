"""The program of AgentScope 1.x's guide "提示词格式化", as printed there but for what a comment names.

python -m pip install dashscope
python examples/agentscope_1_x.py

It counts 164 tokens, then 135, where the guide has 165 and 136. With full-width commas, question and exclamation marks
in the messages, as Chinese is written, it counts 165 and 136 too.
"""
# ruff: noqa: D415, E401, I001 - as printed

import asyncio, json

from qwen_token_counter import HuggingFaceTokenCounter  # printed: from agentscope.token, which asks a model hub

from lazyprompt.compat.agentscope import (  # printed: from agentscope.formatter and agentscope.message
    DashScopeMultiAgentFormatter,
    Msg,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

input_msgs = [
    # 系统提示
    Msg("system", "你是一个名为 Friday 的有用助手", "system"),
    # 对话历史
    Msg("Bob", "你好,Alice,你知道最近的图书馆在哪里吗?", "assistant"),
    Msg(
        "Alice",
        "抱歉,我不知道。Charlie,你有什么想法吗?",
        "assistant",
    ),
    Msg(
        "Charlie",
        "没有,我们问问 Friday 吧。Friday,帮我找到最近的图书馆。",
        "assistant",
    ),
    # 工具序列
    Msg(
        "Friday",
        [
            ToolUseBlock(
                type="tool_use",
                name="get_current_location",
                id="1",
                input={},
            ),
        ],
        "assistant",
    ),
    Msg(
        "system",
        [
            ToolResultBlock(
                type="tool_result",
                name="get_current_location",
                id="1",
                output=[TextBlock(type="text", text="104.48, 36.30")],
            ),
        ],
        "system",
    ),
    Msg(
        "Friday",
        [
            ToolUseBlock(
                type="tool_use",
                name="search_around",
                id="2",
                input={"location": [104.48, 36.30], "keyword": "library"},
            ),
        ],
        "assistant",
    ),
    Msg(
        "system",
        [
            ToolResultBlock(
                type="tool_result",
                name="search_around",
                id="2",
                output=[TextBlock(type="text", text="[...]")],
            ),
        ],
        "system",
    ),
    # 对话历史继续
    Msg("Friday", "最近的图书馆是...", "assistant"),
    Msg("Bob", "谢谢,Friday!", "user"),
    Msg("Alice", "我们一起去吧。", "user"),
]


async def run_formatter_example() -> list[dict]:  # type: ignore[type-arg]
    """多智能体消息格式化示例。"""
    formatter = DashScopeMultiAgentFormatter()
    formatted_message = await formatter.format(input_msgs)
    print("格式化后的消息:")
    print(json.dumps(formatted_message, indent=4, ensure_ascii=False))
    return formatted_message


formatted_message = asyncio.run(run_formatter_example())

print("第一段对话历史:")
print(formatted_message[1]["content"])

print("\n第二段对话历史:")
print(formatted_message[-1]["content"])


async def run_token_counter() -> int:
    """计算输入消息的 token 数量。"""
    # 我们使用 huggingface token 计数器用于 dashscope 模型。
    token_counter = HuggingFaceTokenCounter(
        "Qwen/Qwen2.5-VL-3B-Instruct",
        use_mirror=True,
    )

    return await token_counter.count(formatted_message)


n_tokens = asyncio.run(run_token_counter())
print("格式化消息中的 token 数量为:", n_tokens)


async def run_truncated_formatter() -> None:
    """带截断的消息格式化示例。"""
    token_counter = HuggingFaceTokenCounter(
        pretrained_model_name_or_path="Qwen/Qwen2.5-VL-3B-Instruct",
        use_mirror=True,
    )
    formatter = DashScopeMultiAgentFormatter(
        token_counter=token_counter,
        max_tokens=n_tokens - 20,
    )
    truncated_formatted_message = await formatter.format(input_msgs)
    n_truncated_tokens = await token_counter.count(truncated_formatted_message)
    print("截断后的 token 数量:", n_truncated_tokens)

    print("\n截断后的对话历史:")
    print(truncated_formatted_message[1]["content"])


asyncio.run(run_truncated_formatter())

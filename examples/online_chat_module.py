"""One prompter on a provider's model. OPENAI_API_KEY is in the environment."""

import lazyprompt

instruction = (
    "你是一个由LazyLLM开发的知识问答助手,你的任务是根据提供的上下文信息来回答用户的问题。"
    "上下文信息是{context},用户的问题是{input}, 现在请你做出回答。"
)
prompter = lazyprompt.AlpacaPrompter(instruction)
module = lazyprompt.OnlineChatModule("openai").prompt(prompter)
reply = module(dict(context="背景", input="输入"))  # noqa: C408 - as the document has it
print(reply)

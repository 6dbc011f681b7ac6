"""The programs of AgentScope 0.0's guide "Prompt Engineering", as printed there but for what a comment names.

python examples/agentscope_0_0.py
"""
# mypy: allow-redefinition

from base64 import b64decode
from pathlib import Path
from tempfile import TemporaryDirectory

from lazyprompt import MediaResolver
from lazyprompt.compat.agentscope_0_0 import (  # printed: from agentscope.models, .message and .prompt
    DashScopeChatWrapper,
    DashScopeMultiModalWrapper,
    GeminiChatWrapper,
    Msg,
    OllamaChatWrapper,
    OllamaGenerationWrapper,
    OpenAIChatWrapper,
    PromptEngine,
    ZhipuAIChatWrapper,
)

# A picture of one pixel and a sound, where the guide has /Users/xxx.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
directory = TemporaryDirectory()
users = directory.name
(Path(users) / "test.png").write_bytes(b64decode(PIXEL))
(Path(users) / "test.mp3").write_bytes(b"ID3\x03")

# fmt: off

# --- OpenAIChatWrapper ---
model = OpenAIChatWrapper(
    config_name="", # empty since we directly initialize the model wrapper
    model_name="gpt-4",
)

prompt = model.format(
   Msg("system", "You're a helpful assistant", role="system"),   # Msg object
   [                                                             # a list of Msg objects
      Msg(name="Bob", content="Hi.", role="assistant"),
      Msg(name="Alice", content="Nice to meet you!", role="assistant"),
   ],
)
print(prompt)

# --- Vision Models ---
model = OpenAIChatWrapper(
    config_name="", # empty since we directly initialize the model wrapper
    model_name="gpt-4o",
    media=MediaResolver(roots=[users]),  # not printed: which directory messages may name files of
)

prompt = model.format(
   Msg("system", "You're a helpful assistant", role="system"),   # Msg object
   [                                                             # a list of Msg objects
      Msg(name="user", content="Describe this image", role="user", url="https://xxx.png"),
      Msg(name="user", content="And these images", role="user", url=[f"{users}/test.png", f"{users}/test.mp3"]),
   ],
)
print(prompt)

# --- DashScopeChatWrapper ---
model = DashScopeChatWrapper(
    config_name="", # empty since we directly initialize the model wrapper
    model_name="qwen-max",
)

prompt = model.format(
   Msg("system", "You're a helpful assistant", role="system"),   # Msg object
   [                                                             # a list of Msg objects
      Msg(name="Bob", content="Hi!", role="assistant"),
      Msg(name="Alice", content="Nice to meet you!", role="assistant"),
   ],
)
print(prompt)

# --- DashScopeMultiModalWrapper ---
model = DashScopeMultiModalWrapper(
    config_name="", # empty since we directly initialize the model wrapper
    model_name="qwen-vl-plus",
)

prompt = model.format(
   Msg("system", "You're a helpful assistant", role="system", url="url_to_png1"),   # Msg object
   [                                                                                # a list of Msg objects
      Msg(name="Bob", content="Hi!", role="assistant", url="url_to_png2"),
      Msg(name="Alice", content="Nice to meet you!", role="assistant", url="url_to_png3"),
   ],
)
print(prompt)

# --- OllamaChatWrapper ---
model = OllamaChatWrapper(
    config_name="", # empty since we directly initialize the model wrapper
    model_name="llama2",
)

prompt = model.format(
   Msg("system", "You're a helpful assistant", role="system"),   # Msg object
   [                                                             # a list of Msg objects
      Msg(name="Bob", content="Hi.", role="assistant"),
      Msg(name="Alice", content="Nice to meet you!", role="assistant", url="https://example.com/image.jpg"),
   ],
)

print(prompt)

# --- OllamaGenerationWrapper ---
model = OllamaGenerationWrapper(
    config_name="", # empty since we directly initialize the model wrapper
    model_name="llama2",
)

prompt = model.format(
   Msg("system", "You're a helpful assistant", role="system"),   # Msg object
   [                                                             # a list of Msg objects
      Msg(name="Bob", content="Hi.", role="assistant"),
      Msg(name="Alice", content="Nice to meet you!", role="assistant"),
   ],
)

print(prompt)

# --- GeminiChatWrapper ---
model = GeminiChatWrapper(
    config_name="", # empty since we directly initialize the model wrapper
    model_name="gemini-pro",
)

prompt = model.format(
   Msg("system", "You're a helpful assistant", role="system"),   # Msg object
   [                                                             # a list of Msg objects
      Msg(name="Bob", content="Hi!", role="assistant"),
      Msg(name="Alice", content="Nice to meet you!", role="assistant"),
   ],
)

print(prompt)

# --- ZhipuAIChatWrapper ---
model = ZhipuAIChatWrapper(
    config_name="", # empty since we directly initialize the model wrapper
    model_name="glm-4",
    api_key="your api key",
)

prompt = model.format(
   Msg("system", "You're a helpful assistant", role="system"),   # Msg object
   [                                                             # a list of Msg objects
      Msg(name="Bob", content="Hi!", role="assistant"),
      Msg(name="Alice", content="Nice to meet you!", role="assistant"),
   ],
)
print(prompt)

# --- Prompt Engine; the guide prints none of its results, and elides what is marked ---
model = OllamaGenerationWrapper(model_name="llama2")  # printed: OpenAIChatWrapper(...); this one takes a string
engine = PromptEngine(model)

system_prompt = "You're a helpful assistant."
memory = [{"name": "user", "content": "What's the weather like today?"}]  # printed: ... # can be dict, list, or string
hint_prompt = "Please respond in JSON format."

prompt = engine.join(system_prompt, memory, hint_prompt)
print(prompt)

model = OpenAIChatWrapper()  # printed: OpenAIChatWrapper(...)
engine = PromptEngine(model)

system_prompt = "You're a helpful assistant."
user_messages = [{"name": "user", "content": "What's the weather like today?"}]

prompt = engine.join(system_prompt, user_messages)
print(prompt)

variables = {"location": "London"}
hint_prompt = "Find the weather in {location}."
user_input = "I leave tomorrow."  # not printed

prompt = engine.join(system_prompt, user_input, hint_prompt, format_map=variables)
print(prompt)

directory.cleanup()

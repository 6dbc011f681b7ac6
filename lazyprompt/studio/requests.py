"""Requests of the page, each as a checked value."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import from_json


class WrongRequestError(Exception):
    """A request that no page of ours sends; the message says what is wrong with it."""


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class PutAttack(_Request):
    """A hostile value in the place of one of the user's.

    Args:
        id: Which, of :data:`lazyprompt.studio.attacks.ATTACKS`.
        slot: The input that it is put into.
    """

    id: str
    slot: str


class _Shown(_Request):
    """A text with its inputs, in one form.

    Args:
        path: The path of its file in the workspace.
        text: The text, as it is in the editor.
        inputs: The values by their names.
        history: The earlier messages.
        form: ``flat``, or a provider.
        model: As of :func:`lazyprompt.inspect.look.look`.
    """

    path: str
    text: str
    inputs: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    history: list[JsonValue] | None = None
    form: str = "flat"
    model: str | None = None


class LookRequest(_Shown):
    """Request to view a prompt.

    Args:
        max_tokens: What is to be trimmed to.
        window: The tokens of the context window.
        counter: The name of a counter.
        attack: A hostile value to be put in.
    """

    max_tokens: int | None = Field(default=None, ge=1)
    window: int | None = Field(default=None, ge=1)
    counter: str = "approximate"
    attack: PutAttack | None = None


class DiffRequest(_Shown):
    """Request to compare two prompts.

    Args:
        other: The path of the file that the text is compared with.
    """

    other: str


class CheckRequest(_Request):
    """A text to be checked.

    Args:
        path: The path of its file in the workspace.
        text: The text, as it is in the editor.
    """

    path: str
    text: str


class SaveRequest(CheckRequest):
    """A text to be saved.

    Args:
        path: The path of the file in the workspace.
        text: What it is to hold.
        hash: The hash of what was read; None where there was no file.
    """

    hash: str | None


_Asked = TypeVar("_Asked", bound=_Request)


def asked(kind: type[_Asked], body: bytes) -> _Asked:
    """A request out of its body.

    Args:
        kind: What it is to be.
        body: The JSON.

    Raises:
        WrongRequestError: It is no JSON, or not what it is to be.
    """
    try:
        # From JSON first: of what stands in a value, only values are asked whether they are numbers.
        return kind.model_validate(from_json(body, allow_inf_nan=False))
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors(include_url=False))
        raise WrongRequestError("; ".join(faults)) from error
    except ValueError as error:
        raise WrongRequestError(f"the body is no JSON: {error}") from error

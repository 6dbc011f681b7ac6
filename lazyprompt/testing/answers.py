"""Answers of a model to cases, kept by the content of the request, so that no request is paid for twice."""

from __future__ import annotations

import json
import sqlite3
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any

from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lazyprompt.modules.online import OnlineChatModule
    from lazyprompt.modules.trainable import TrainableModule
    from lazyprompt.testing.rendered import LoadedPrompt, RenderedCase


class Answers:
    """A model, and the answers that it has given; many threads may use it.

    Args:
        path: The SQLite file that keeps the answers.
        module: The model.
        name: The name of the source and the model, which is part of each key.
        params: Finds the parameters that a prompt file asks for.

    Raises:
        BatchError: The file cannot be read or written.
    """

    def __init__(
        self,
        path: Path,
        module: OnlineChatModule | TrainableModule,
        name: str,
        params: Callable[[LoadedPrompt], Mapping[str, Any]],
    ) -> None:
        self.asked = 0
        self.left = 0
        self._module, self._name, self._params = module, name, params
        self._lock = Lock()
        try:
            if not path.parent.exists():
                path.parent.mkdir(parents=True)
                path.with_name(".gitignore").write_text("*\n", encoding="utf-8")  # answers are no source
            self._database = sqlite3.connect(path, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            with self._database:
                self._database.execute("CREATE TABLE IF NOT EXISTS answers (request TEXT PRIMARY KEY, answer TEXT)")
        except (OSError, sqlite3.Error) as error:
            raise BatchError(f"{path} cannot keep answers: {error}; give another file with --answers") from error

    def answer(self, case: RenderedCase, *, ask: bool) -> str | None:
        """Return the answer to a case; None if there is none and the model is not to be asked.

        Args:
            case: The case.
            ask: True to ask the model if no answer is kept.

        Raises:
            ModuleError: The model gives no answer.
        """
        module, params = self._module.share(case.source.prompter), self._params(case.source)
        request = json.dumps([self._name, module.payload(*case.call, **params)], sort_keys=True, default=str)
        key = sha256(request.encode()).hexdigest()
        with self._lock:
            kept = self._database.execute("SELECT answer FROM answers WHERE request = ?", (key,)).fetchone()
        if kept is not None:
            return str(kept[0])
        if not ask:
            with self._lock:
                self.left += 1
            return None
        answer = str(module(*case.call, **params))
        with self._lock, self._database:
            self._database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, answer))
            self.asked += 1
        return answer

    def close(self) -> None:
        """Close the file."""
        self._database.close()

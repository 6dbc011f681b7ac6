"""Execution of test cases: checks, snapshots, version comparisons and model calls."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from errno import ESTALE
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from lazyprompt._base.difference import changed_lines
from lazyprompt._base.files import make_own_directory, open_own, own_database_status, write_whole
from lazyprompt._base.secret import HiddenEnvironment, shown
from lazyprompt.errors import BatchError, LazyPromptError, ModuleError
from lazyprompt.files.references import text_in_place
from lazyprompt.files.yaml_nodes import SourceText, YamlReader, plain
from lazyprompt.testing.checks import Failure, answer_failures, prompt_failures
from lazyprompt.testing.difference import CaseChange, Comparison
from lazyprompt.testing.rendered import LoadedPrompt, RenderedCase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.online import OnlineChatModule
    from lazyprompt.modules.trainable import TrainableModule
    from lazyprompt.testing.cases import Case, CaseFile
    from lazyprompt.testing.rendered import Arguments


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes multi-line text as a block."""


_Dumper.add_representer(
    str, lambda _, text: yaml.ScalarNode("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
)


class Snapshots:
    """The snapshots for a test file.

    Args:
        cases: The test file's path.
        update: True to replace the snapshots with the current prompts.
    """

    def __init__(self, cases: Path, *, update: bool = False) -> None:
        self._path = cases.with_name(f"{cases.name.rpartition('.')[0]}.snapshots.yaml")
        self._update = update
        self._kept: JsonObject = {}
        self._used: JsonObject = {}
        if os.path.lexists(self._path):
            source = SourceText(text_in_place(self._path), str(self._path))
            fields = source.mapping_of(YamlReader(source).read(), "a snapshot file")
            self._kept = {name: plain(node) for name, node in fields.items()}

    def fault(self, name: str, case: RenderedCase) -> tuple[str, str, str] | None:
        """Return a message, an empty slot name and a diff, or None if the prompt matches its snapshot.

        Args:
            name: The snapshot's name.
            case: The rendered prompt.
        """
        payload: JsonObject = {**case.render("openai")}
        if self._update:
            self._used[name] = payload
            return None
        if name not in self._kept:
            return "no snapshot exists yet; create it with --update", "", ""
        lines = changed_lines(_dump(self._kept[name]), _dump(payload))
        return (
            ("the prompt differs from its snapshot; accept it with --update", "", "\n".join(lines)) if lines else None
        )

    def save(self) -> None:
        """Write the snapshots if updating is enabled and they have changed.

        Raises:
            OSError: The file can't be written.
        """
        if not self._update or self._used == self._kept:
            return
        if self._used:
            write_whole(self._path, _dump(self._used).encode())
        else:
            self._path.unlink(missing_ok=True)


def _dump(value: object) -> str:
    # YAML writes an alias for an object that appears twice, so copy the value first.
    text: str = yaml.dump(
        json.loads(json.dumps(shown(value))), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=10_000
    )
    return text


# Errors of these kinds affect only one request; after any other error, no more requests are sent.
_OF_ONE: Final = frozenset(("request", "overflow", "refusal", "empty", "invalid"))


class Result(NamedTuple):
    """The result of running a test case.

    Attributes:
        case: The test case.
        failures: The failed checks. A check named ``render`` means that rendering failed; ``answer`` means that the
            model call failed.
        rendered: The rendered prompt, or None if rendering failed.
        change: The difference from the baseline version of the prompt, if any.
        answer: The model's response, or None if no model was called.
    """

    case: Case
    failures: tuple[Failure, ...] = ()
    rendered: RenderedCase | None = None
    change: CaseChange | None = None
    answer: str | None = None


class Answers:
    """A thread-safe store of a model's responses, keyed by request.

    Args:
        path: The SQLite file that stores the responses.
        module: The module that calls the model.
        name: The name of the model, optionally with its source, such as ``openai:gpt-5-mini``. The name is part of the
            key of each stored response.
        params: A function that returns the model parameters for a prompt.

    Raises:
        BatchError: The SQLite file can't be read or written.
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
        self.fault: ModuleError | None = None
        """The error after which no more requests are sent, if any."""
        self._module, self._name, self._params = module, name, params
        self._lock = Lock()
        try:
            if make_own_directory(path.parent):
                path.with_name(".gitignore").write_text("*\n", encoding="utf-8")  # keep responses out of the repository
            self._database = _own_database(path)
            self._database.execute("PRAGMA journal_mode = WAL")
            with self._database:
                self._database.execute("CREATE TABLE IF NOT EXISTS answers (request TEXT PRIMARY KEY, answer TEXT)")
        except (OSError, sqlite3.Error) as error:
            raise BatchError(
                f"responses can't be saved in {path}: {error}; choose another file with --answers"
            ) from error

    def answer(self, case: RenderedCase, *, ask: bool) -> str | None:
        """Return the response for a test case, or None if no response is stored and ``ask`` is False.

        Args:
            case: The rendered test case.
            ask: True to call the model if no response is stored.

        Raises:
            ModuleError: The model call fails.
        """
        source = case.source.sent or case.source
        module, params = self._module.share(source.prompter), self._params(source)
        request = json.dumps([self._name, module.payload(*case.call, **params)], sort_keys=True, default=str)
        key = sha256(request.encode()).hexdigest()
        with self._lock:
            kept = self._database.execute("SELECT answer FROM answers WHERE request = ?", (key,)).fetchone()
            self.left += kept is None and not ask
        if kept is not None or not ask:
            return None if kept is None else str(kept[0])
        if self.fault is not None:
            raise ModuleError(f"skipped, because the request for another test case failed: {self.fault}")
        try:
            answer: str = shown(str(module(*case.call, **params)), source.secrets)
        except ModuleError as error:
            if error.kind not in _OF_ONE:
                self.fault = error
            raise
        with self._lock, self._database:
            self._database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, answer))
            self.asked += 1
        return answer

    def close(self) -> None:
        """Close the SQLite file."""
        self._database.close()


def _own_database(path: Path) -> sqlite3.Connection:
    """Open or create an SQLite database, and check that the opened file was not replaced.

    Raises:
        OSError: The path is not a regular file, or the file was replaced while it was being opened.
    """
    os.close(open_own(path))
    before = own_database_status(path)
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        connection.execute("PRAGMA schema_version")  # forces SQLite to open the file
        after = own_database_status(path)
    except BaseException:
        connection.close()
        raise
    if before is None or after is None or not os.path.samestat(before, after):
        connection.close()
        raise OSError(ESTALE, "another process replaced the file")
    return connection


@dataclass(frozen=True)
class Runner:
    """A runner for test files.

    Args:
        params: The values for ``${params:name}`` references, which override the values in test files.
        roots: Additional directories that contain files to which prompt files may refer.
        update: True to replace the snapshots with the current prompts.
        older: A function that maps the path of a prompt file to the path of the file's baseline version; None to skip
            the comparison.
        answers: The store of model responses; None to call no model.
        concurrency: The maximum number of parallel requests.
        env: The names of the environment variables that prompt files may refer to in fields other than connection
            settings.
        allow_code: True to allow ``python`` checks, which run arbitrary code.
    """

    params: Mapping[str, object] = field(default_factory=dict[str, object])
    roots: Sequence[str] = ()
    update: bool = False
    older: Callable[[Path], Path] | None = None
    answers: Answers | None = None
    concurrency: int = 8
    env: Sequence[str] = ()
    allow_code: bool = False

    def run(self, files: Iterable[CaseFile]) -> Iterator[Result]:
        """Yield the result of each test case, in order.

        Args:
            files: The test files.

        Raises:
            BatchError: A row file can't be read, or a check's function doesn't exist or is not allowed.
        """
        files = [*files]
        if self.answers is not None and not self.allow_code:
            for each in files:
                each.check_no_code()
        results = (result for file in files for result in self._checked(file))
        if self.answers is None:
            yield from results
            return
        waiting: deque[tuple[Result, Future[str | None]]] = deque()
        with ThreadPoolExecutor(self.concurrency) as pool:
            try:
                for result in results:
                    waiting.append((result, pool.submit(self._ask, self.answers, result)))
                    if len(waiting) > 2 * self.concurrency:
                        yield _answered(*waiting.popleft())
                while waiting:
                    yield _answered(*waiting.popleft())
            finally:
                pool.shutdown(cancel_futures=True)

    def _ask(self, answers: Answers, result: Result) -> str | None:
        """Return a test case's response. With a baseline version, call the model only for new or changed prompts."""
        if result.rendered is None:
            return None
        return answers.answer(result.rendered, ask=self.older is None or result.change is not None)

    def _checked(self, file: CaseFile) -> Iterator[Result]:
        """Yield the results of a test file's prompt checks, without model calls."""
        loaded = self._loaded(file, file.prompt)
        if self.answers is not None and isinstance(loaded, LoadedPrompt):
            sent = self._loaded(file, file.prompt, is_sent=True)
            loaded = replace(loaded, sent=sent) if isinstance(sent, LoadedPrompt) else sent
        older = None if self.older is None else self._loaded(file, self.older(file.prompt))
        snapshots = Snapshots(file.path, update=self.update)
        comparison = None if older is None else Comparison(older, loaded)
        # Reuse the parsed arguments if the old and new prompt versions read the same columns.
        is_alike = isinstance(loaded, LoadedPrompt) and isinstance(older, LoadedPrompt) and loaded.reads_like(older)
        for case in file.cases():
            made = _rendered(case, loaded, is_current=True)
            change = None
            if older is not None and comparison is not None:
                given = made.call if is_alike and isinstance(made, RenderedCase) else None
                change = comparison.change(_rendered(case, older, given), made)
            if isinstance(made, str):
                yield Result(case, (Failure("render", made),), change=change)
                continue
            failures: tuple[Failure, ...] = ()
            if case.prompt:
                try:
                    failures = tuple(prompt_failures(made, case.prompt, snapshots.fault, case.name))
                except LazyPromptError as error:
                    failures = (Failure("render", str(error)),)
            yield Result(case, failures, made, change)
        snapshots.save()

    def _loaded(self, file: CaseFile, path: Path, *, is_sent: bool = False) -> LoadedPrompt | str:
        environment, named = (None, frozenset(self.env)) if is_sent else (HiddenEnvironment(), None)
        try:
            return LoadedPrompt.load(
                path, {**file.params, **self.params}, self.roots, environment=environment, named=named
            )
        except LazyPromptError as error:
            # The other prompt version may be in a temporary directory, so replace its path in the error message.
            return str(error).replace(str(path), str(file.prompt)) if path.exists() or path == file.prompt else ""


def _rendered(
    case: Case, source: LoadedPrompt | str, given: Arguments | None = None, *, is_current: bool = False
) -> RenderedCase | str:
    """Render a test case, and return the rendered prompt or the error message.

    Older versions of a prompt may lack inputs, so names of inputs are checked only for the current version.
    """
    if case.fault or isinstance(source, str):
        return case.fault or str(source)
    try:
        if given is None:
            given = case.arguments if case.row is None else source.arguments(case.row)
        made = source.render(*given)
        if is_current:
            source.check_names(given[0])
    except LazyPromptError as error:
        return str(error)
    return made


def _answered(result: Result, answer: Future[str | None]) -> Result:
    try:
        text = answer.result()
    except LazyPromptError as error:
        return result._replace(failures=(*result.failures, Failure("answer", str(error))))
    if text is None:
        return result
    failures = (*result.failures, *answer_failures(text, result.case.answer, result.case.inputs))
    return result._replace(answer=text, failures=failures)

"""Cases run: each prompt filled, checked, compared with its snapshot and another version, and answered by a model."""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import yaml

from lazyprompt._base.difference import changed_lines
from lazyprompt._base.files import write_whole
from lazyprompt.errors import BatchError, LazyPromptError, ModuleError
from lazyprompt.files.yaml_nodes import Reader, Source, plain, text_of_file
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
    """Writes text of several lines as a block."""


_Dumper.add_representer(
    str, lambda _, text: yaml.ScalarNode("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
)


class Snapshots:
    """The snapshots of a file of cases.

    Args:
        cases: The file of cases.
        update: True to take prompts as they are.
    """

    def __init__(self, cases: Path, *, update: bool = False) -> None:
        self._path = cases.with_name(f"{cases.name.rpartition('.')[0]}.snapshots.yaml")
        self._update = update
        self._kept: JsonObject = {}
        self._used: JsonObject = {}
        if self._path.exists():
            source = Source(text_of_file(str(self._path)), str(self._path))
            fields = source.mapping_of(Reader(source).read(), "a file of snapshots")
            self._kept = {name: plain(node) for name, node in fields.items()}

    def fault(self, name: str, case: RenderedCase) -> tuple[str, str, str] | None:
        """Return a message, no slot and the lines that differ; None if a prompt is that of its snapshot.

        Args:
            name: The name of the snapshot.
            case: The prompt.
        """
        payload = {**cast("JsonObject", case.source.prompter.target("openai").render(case.prompt))}
        if self._update:
            self._used[name] = payload
            return None
        if name not in self._kept:
            return "there is no snapshot yet; --update writes it", "", ""
        lines = changed_lines(_dump(self._kept[name]), _dump(payload))
        return ("the prompt differs from its snapshot; --update takes it", "", "\n".join(lines)) if lines else None

    def save(self) -> None:
        """Write the snapshots, if they are to be updated.

        Raises:
            OSError: They cannot be written.
        """
        if not self._update or self._used == self._kept:
            return
        if self._used:
            write_whole(self._path, _dump(self._used).encode())
        else:
            self._path.unlink(missing_ok=True)


def _dump(value: object) -> str:
    # A copy that shares nothing: YAML would write an alias for what stands there twice.
    text: str = yaml.dump(
        json.loads(json.dumps(value)), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=10_000
    )
    return text


# Kinds of module errors that are the fault of one request; after any other, no further case is asked.
_OF_ONE: Final = frozenset(("request", "overflow", "refusal", "empty", "invalid"))


class Result(NamedTuple):
    """The result of a case.

    Attributes:
        case: The case.
        failures: The checks that fail; ``render`` if there is no prompt, ``answer`` if there is no answer.
        rendered: The prompt; None if there is none.
        change: The difference to the other version; None if there is none, or no other version.
        answer: The answer; None if no model was asked.
    """

    case: Case
    failures: tuple[Failure, ...] = ()
    rendered: RenderedCase | None = None
    change: CaseChange | None = None
    answer: str | None = None


class Answers:
    """A model, and the answers that it has given, kept by the content of the request; many threads may use it.

    Args:
        path: The SQLite file that keeps the answers.
        module: The model.
        name: The name of the source and the model, which is part of each key.
        params: Finds the parameters that a prompt asks for.

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
        self.fault: ModuleError | None = None
        """The error that ended the asking, if there is one."""
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
            self.left += kept is None and not ask
        if kept is not None or not ask:
            return None if kept is None else str(kept[0])
        if self.fault is not None:
            raise ModuleError(f"not asked, because another case had no answer: {self.fault}")
        try:
            answer = str(module(*case.call, **params))
        except ModuleError as error:
            if error.kind not in _OF_ONE:
                self.fault = error
            raise
        with self._lock, self._database:
            self._database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, answer))
            self.asked += 1
        return answer

    def close(self) -> None:
        """Close the file."""
        self._database.close()


@dataclass(frozen=True)
class Runner:
    """Runs files of cases.

    Args:
        params: The values of ``${params:name}``, beside those of the files.
        roots: Directories that prompt files may refer to.
        update: True to take snapshots as they are.
        older: Finds the file of another version that stands in the place of a prompt file; None compares none.
        answers: The answers of a model; None asks none.
        concurrency: The number of cases asked at once.
    """

    params: Mapping[str, object] = field(default_factory=dict[str, object])
    roots: Sequence[str] = ()
    update: bool = False
    older: Callable[[Path], Path] | None = None
    answers: Answers | None = None
    concurrency: int = 8

    def run(self, files: Iterable[CaseFile]) -> Iterator[Result]:
        """Yield the result of each case, in order.

        Args:
            files: The files of cases.

        Raises:
            BatchError: A file of rows cannot be read, or a function of a check is not there.
        """
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
        """Return the answer: a recorded one, or of a new or changed prompt the model's."""
        if result.rendered is None:
            return None
        return answers.answer(result.rendered, ask=self.older is None or result.change is not None)

    def _checked(self, file: CaseFile) -> Iterator[Result]:
        """Yield the results of a file, without answers."""
        loaded = self._loaded(file, file.prompt)
        older = None if self.older is None else self._loaded(file, self.older(file.prompt))
        snapshots = Snapshots(file.path, update=self.update)
        comparison = None if older is None else Comparison(older, loaded)
        # Both versions read most rows alike.
        is_alike = isinstance(loaded, LoadedPrompt) and isinstance(older, LoadedPrompt) and loaded.reads_like(older)
        for case in file.cases():
            made = _rendered(case, loaded)
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

    def _loaded(self, file: CaseFile, path: Path) -> LoadedPrompt | str:
        try:
            return LoadedPrompt.load(path, {**file.params, **self.params}, self.roots)
        except LazyPromptError as error:
            # The other version lies in a temporary directory.
            return str(error).replace(str(path), str(file.prompt)) if path.exists() or path == file.prompt else ""


def _rendered(case: Case, source: LoadedPrompt | str, given: Arguments | None = None) -> RenderedCase | str:
    """Return the prompt of a case, or the reason why there is none."""
    if case.fault or isinstance(source, str):
        return case.fault or str(source)
    try:
        if given is None:
            given = case.arguments if case.row is None else source.arguments(case.row)
        return source.rendered(*given)
    except LazyPromptError as error:
        return str(error)


def _answered(result: Result, answer: Future[str | None]) -> Result:
    try:
        text = answer.result()
    except LazyPromptError as error:
        return result._replace(failures=(*result.failures, Failure("answer", str(error))))
    if text is None:
        return result
    failures = (*result.failures, *answer_failures(text, result.case.answer, result.case.inputs))
    return result._replace(answer=text, failures=failures)

"""Cases run: each prompt filled and checked, compared with another version, and answered by a model."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt.errors import LazyPromptError
from lazyprompt.testing.checks import Failure, answer_failures, prompt_failures
from lazyprompt.testing.difference import compared
from lazyprompt.testing.rendered import LoadedPrompt
from lazyprompt.testing.snapshots import Snapshots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from lazyprompt.testing.answers import Answers
    from lazyprompt.testing.cases import Case, CaseFile
    from lazyprompt.testing.difference import Change
    from lazyprompt.testing.rendered import RenderedCase


class Result(NamedTuple):
    """The result of a case.

    Attributes:
        case: The case.
        prompt: The prompt file.
        failures: The checks that fail; ``render`` if there is no prompt.
        rendered: The prompt; None if there is none.
        change: The difference to the other version; None if there is none, or no other version.
        answer: The answer; None if no model was asked.
    """

    case: Case
    prompt: Path
    failures: tuple[Failure, ...] = ()
    rendered: RenderedCase | None = None
    change: Change | None = None
    answer: str | None = None


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
            ModuleError: The model gives no answer.
        """
        if self.answers is None:
            yield from (result for file in files for result in self._checked(file))
            return
        waiting: deque[tuple[Result, Future[str | None]]] = deque()
        with ThreadPoolExecutor(self.concurrency) as pool:
            try:
                for file in files:
                    for result in self._checked(file):
                        waiting.append((result, pool.submit(self._ask, result)))
                        if len(waiting) > 2 * self.concurrency:
                            yield _answered(*waiting.popleft())
                while waiting:
                    yield _answered(*waiting.popleft())
            finally:
                pool.shutdown(cancel_futures=True)

    def _ask(self, result: Result) -> str | None:
        """Return the answer: a recorded one, or of a new or changed prompt the model's."""
        if self.answers is None or result.rendered is None:
            return None
        return self.answers.answer(result.rendered, ask=self.older is None or result.change is not None)

    def _checked(self, file: CaseFile) -> Iterator[Result]:
        """Yield the results of a file, without answers."""
        loaded = self._loaded(file, file.prompt)
        older = None if self.older is None else self._loaded(file, self.older(file.prompt))
        snapshots = Snapshots(file.path, update=self.update)
        for case in file.cases():
            made = case.fault or _rendered(loaded, case)
            change = None
            if older is not None:
                before = case.fault or _rendered(older, case)
                change = compared(before, made)
            if isinstance(made, str):
                yield Result(case, file.prompt, (Failure("render", made),), change=change)
                continue
            try:
                failures = prompt_failures(made, case.prompt, snapshots, case.name)
            except LazyPromptError as error:
                failures = [Failure("render", str(error))]
            yield Result(case, file.prompt, tuple(failures), made, change)
        snapshots.save()

    def _loaded(self, file: CaseFile, path: Path) -> LoadedPrompt | str:
        try:
            return LoadedPrompt.load(path, {**file.params, **self.params}, self.roots)
        except LazyPromptError as error:
            return str(error)


def _rendered(loaded: LoadedPrompt | str, case: Case) -> RenderedCase | str:
    """Return the prompt of a case, or the reason why there is none."""
    if isinstance(loaded, str):
        return loaded
    try:
        return loaded.rendered(case.inputs, case.history, case.tools, is_row=case.is_row)
    except LazyPromptError as error:
        return str(error)


def _answered(result: Result, answer: Future[str | None]) -> Result:
    text = answer.result()
    if text is None:
        return result
    failures = (*result.failures, *answer_failures(text, result.case.answer, result.case.inputs))
    return result._replace(answer=text, failures=failures)

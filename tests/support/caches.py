"""What the package keeps from one call to the next, found in its source, and how much of it at most.

Three kinds are found: functions under ``lru_cache`` or ``cache``; dicts, lists and sets of a module that are empty when
it is imported; and dicts and sets of an object that a method other than ``__init__`` puts something into.
"""

import ast
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from support.paths import PACKAGE

_GROWS = frozenset({"setdefault", "append", "add", "update", "extend", "insert", "appendleft", "__setitem__"})
_BY_KEY = frozenset({"dict", "set", "defaultdict", "OrderedDict", "WeakKeyDictionary", "WeakValueDictionary"})
_EMPTY = _BY_KEY | {"list", "deque"}


# What is kept longer than a call, and why it does not grow.
BOUNDS: dict[str, str] = {
    "batch/calls.py:_CallRun._tasks": "the calls under way, as many as may be at once",
    "budget/summary.py:Summaries._made": "the summaries of 64 conversations",
    "budget/costs.py:CountCache._new": "the counts of 16,384 messages, and as many from before",
    "messages/backends.py:_KNOWN": "one entry a tokenizer, as long as that lives",
    "messages/backends.py:_VOCABULARIES": "one entry an encoding, while that lives; of its tokens, those seen",
    "messages/encoding.py:TokenCache._kept": "`max_bytes` of texts and ids, 64 MB unless another number is given",
    "files/library/layers.py:FileCache._kept": (
        "1,000 prompts, and 4,000 listings of directories, of a library; 8 texts of a studio"
    ),
    "modules/_sending.py:Sender._loops": "the event loops that are open",
    "modules/clients/_base.py:OfficialClient._loops": "the event loops that are open",
    "modules/clients/_base.py:OfficialClient._clients": "one for threads, and one for each event loop that is open",
}

# Objects of one call, one response or one file, which are freed with it.
ONE_CALL = frozenset(
    {
        *("AnthropicCollector", "ChatCollector", "ResponsesCollector", "GeminiCollector", "OllamaCollector", "Trace"),
        *("YamlReader", "Snapshots", "Report", "CallIds", "MessageBuilder", "OpenCalls", "_Judge", "_ChoiceCollector"),
        *("_Including", "_Resolver", "_Simulation", "_Tokens", "_Order", "_Work"),
    }
)

# Empty, and never changed.
CONSTANTS = frozenset({"messages/msg.py:_NO_INPUT", "tokens/openai.py:_NO_PARAMETERS"})


class Kept(NamedTuple):
    """Something that is kept.

    Attributes:
        place: Where, as ``safety/policy.py:Controls.of``.
        kind: ``function``, ``module`` or ``object``.
        bound: How many things it keeps at most; None where its source does not say.
    """

    place: str
    kind: str
    bound: int | None


@lru_cache(maxsize=1)
def all_caches() -> tuple[Kept, ...]:
    """All that the package keeps, by place."""
    found: list[Kept] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        where = path.relative_to(PACKAGE).as_posix()
        found += [Kept(f"{where}:{name}", kind, bound) for name, kind, bound in _in_module(tree)]
    return tuple(found)


def lasting_caches() -> list[Kept]:
    """All that is kept longer than one call."""
    return [
        each
        for each in all_caches()
        if each.place not in CONSTANTS and not (each.kind == "object" and owner(each) in ONE_CALL)
    ]


def owner(each: Kept) -> str:
    """The class whose objects keep something."""
    return each.place.rpartition(":")[2].partition(".")[0]


def _in_module(tree: ast.Module) -> Iterator[tuple[str, str, int | None]]:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    numbers = {
        target.id: node.value.value
        for node in tree.body
        for target, node in _named(node)
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, int)
    }
    # Objects made within a function are freed after the call.
    for node in chain(tree.body, *(made.body for made in classes)):
        for name, bound in _functions(node, numbers):
            yield name, "function", bound
    for made in classes:
        yield from ((f"{made.name}.{name}", "object", None) for name in sorted(_growing(made)))
    for node in tree.body:
        for target, assigned in _named(node):
            if _is_empty(assigned.value, _EMPTY):
                yield target.id, "module", None


def _functions(node: ast.stmt, numbers: dict[str, int]) -> Iterator[tuple[str, int | None]]:
    """The cached functions of a statement, decorated or wrapped, with the sizes of their caches."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for decorator in node.decorator_list:
            if (bound := _remembers(decorator, numbers)) is not False:
                yield node.name, _of_arguments(node, bound)
    for target, assigned in _named(node):
        called = assigned.value
        if isinstance(called, ast.Call) and (bound := _remembers(called.func, numbers)) is not False:
            yield target.id, bound


def _named(node: ast.stmt) -> list[tuple[ast.Name, ast.Assign | ast.AnnAssign]]:
    """The names that a statement assigns to."""
    if isinstance(node, ast.Assign):
        return [(target, node) for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [(node.target, node)]
    return []


def _remembers(decorator: ast.expr, numbers: dict[str, int]) -> int | bool | None:
    """The size of the cache that a decorator adds: None if unlimited, False if there is none."""
    call = decorator if isinstance(decorator, ast.Call) else None
    named = decorator if call is None else call.func
    name = named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")
    if name == "cache":
        return None
    if name != "lru_cache":
        return False
    given = [*call.args, *(word.value for word in call.keywords if word.arg == "maxsize")] if call else []
    if not given:
        return 128
    if isinstance(given[0], ast.Constant):
        value = given[0].value
        return value if isinstance(value, int) else None
    return numbers.get(getattr(given[0], "id", ""))


def _of_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef, bound: int | None) -> int | None:
    """A function without arguments keeps one thing, whatever its decorator says."""
    given = function.args
    if not (given.args or given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg):
        return 1
    return bound


def _growing(made: ast.ClassDef) -> set[str]:
    """The dicts and sets of an object, empty at first, that a method other than ``__init__`` puts something into."""
    methods = [node for node in made.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    empty = {
        target.attr
        for method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_empty(node.value, _BY_KEY)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute)
    }
    empty |= {target.id for node in made.body for target, given in _named(node) if _is_field(given.value)}
    return {
        name
        for method in methods
        if method.name != "__init__"
        for node in ast.walk(method)
        if (name := _put_into(node)) in empty
    }


def _is_field(value: ast.expr | None) -> bool:
    """Whether a value is ``field(default_factory=dict[...])`` or the like."""
    return isinstance(value, ast.Call) and any(
        word.arg == "default_factory" and _called(ast.Call(word.value, [], [])) in _BY_KEY for word in value.keywords
    )


def _put_into(node: ast.AST) -> str:
    """The attribute that a node puts something into; ``""`` where it does not."""
    target: ast.expr | None = None
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0].value
    elif isinstance(node, ast.AugAssign):
        target = node.target
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS:
        target = node.func.value
    return target.attr if isinstance(target, ast.Attribute) else ""


def _is_empty(value: ast.expr | None, kinds: frozenset[str]) -> bool:
    """Whether a value is a container of some kinds with nothing in it."""
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List):
        return "list" in kinds and not value.elts
    # The argument of a defaultdict makes values, and is not one itself.
    return (
        isinstance(value, ast.Call) and _called(value) in kinds and (not value.args or _called(value) == "defaultdict")
    )


def _called(call: ast.Call) -> str:
    named = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    return named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")

"""Values that are read from the columns of a row, and errors for missing or wrong values."""

from types import SimpleNamespace
from typing import Any

import pytest

from lazyprompt import ChatPrompter
from lazyprompt.batch.cells import Cells
from lazyprompt.errors import BatchError, HistoryError, SlotError, ToolsError
from lazyprompt.prompters.rows import Columns

NAN = float("nan")
STYLE, PLAIN = ChatPrompter("Be {style}."), ChatPrompter("Help.")
USER = ChatPrompter({"system": "Help.", "user": "{q}?"})
CELLS = Cells.of(Columns({"style": "S", "input": "I"}, history="H", tools="T", label="L", id="N"), STYLE)


def test_columns_are_set_explicitly_or_found_by_name() -> None:
    own = {"style": "S", "input": "I", "history": "H", "tools": "T", "label": "L", "id": "N"}
    assert Cells({"style": "S"}, "I", "H", "T", "L", "N", False, frozenset(), own, ("style",), False) == CELLS  # noqa: FBT003 - all fields
    assert CELLS.used == {"S", "I", "H", "T", "L", "N"}
    taken = Cells.of(Columns({"style": "history", "input": "tools"}), STYLE)
    assert (taken.history, taken.tools) == (None, "tools")
    assert taken.used == {"history", "tools", "label", "id"}
    assert Cells.of(Columns({"q": "tools"}), USER).tools is None
    assert (Cells.of(Columns(), USER).has_user_text, Cells.of(Columns(), USER).named) == (True, {})
    with pytest.raises(
        BatchError, match="a column is set for 'styl', which .* mean 'style'.*; the prompt uses 'style'"
    ):
        Cells.of(Columns({"styl": "x"}), STYLE)


def test_text_for_typed_inputs_is_parsed_as_json() -> None:
    kinds = ("string", "integer", "float", "boolean", "array", "object", "thread")
    inputs: Any = [SimpleNamespace(name=kind, kind=kind, is_needed=True) for kind in kinds]
    cells = Cells.of(Columns(), PLAIN, inputs)
    assert cells.typed == {*kinds[1:]}
    assert cells.input_of(dict.fromkeys(kinds, "[1]")) == {"string": "[1]", **{kind: [1] for kind in kinds[1:]}}
    assert cells.input_of(dict.fromkeys(kinds, "[")) == dict.fromkeys(kinds, "[")


@pytest.mark.parametrize(
    ("prompter", "row", "found"),
    [
        (STYLE, {"style": "a", "input": "b", "x": "c"}, {"style": "a", "input": "b"}),
        (STYLE, {"style": 0, "input": NAN}, {"style": 0}),
        (STYLE, {"style": "", "history": [["a", "b"]], "x": 1}, {"style": ""}),
        (STYLE, {"style": "a", "x": 1}, "no user text: there is no column 'input', and no slot uses 'x'"),
        (STYLE, {"style": NAN}, "column 'style' has no value"),
        (STYLE, {"input": "b"}, "there is no column 'style'; the row has 'input'"),
        (
            STYLE,
            {"conversation": []},
            "no column 'style'; the row has 'conversation'; if 'conversation' contains messages",
        ),
        (PLAIN, {"input": "b"}, {"input": "b"}),
        (
            PLAIN,
            {},
            "the prompt has no slots, so each row needs an input: there is no column 'input'; the row has no col",
        ),
        (PLAIN, {"history": [["a", "b"]]}, {}),
        (USER, {"q": "a", "x": 1}, {"q": "a"}),
    ],
)
def test_the_input_of_a_row_is_read_or_its_error_raised(prompter: Any, row: dict[str, Any], found: object) -> None:
    cells = Cells.of(Columns(), prompter)
    if isinstance(found, dict):
        assert cells.input_of(row) == found
    else:
        with pytest.raises(SlotError) as caught:
            cells.input_of(row)
        assert str(found) in str(caught.value)


@pytest.mark.parametrize(
    ("cells", "columns", "missing"),
    [
        (Cells.of(Columns(), STYLE), ["style", "input"], None),
        (Cells.of(Columns(), STYLE), ["style"], None),
        (Cells.of(Columns(), STYLE), ["history"], None),
        (Cells.of(Columns(), STYLE), ["history", "x"], None),
        (Cells.of(Columns(), STYLE), ["x"], "there is no column 'style'; the rows have 'x'"),
        (
            Cells.of(Columns(), STYLE),
            ["style", "inptu"],
            "column 'input' (did you mean 'inptu'?), and no slot uses 'inptu'; --",
        ),
        (Cells.of(Columns(), PLAIN), ["x"], "there is no column 'input'; the rows have 'x'"),
        (Cells.of(Columns(), USER), ["q", "x"], None),
        (
            CELLS,
            ["S", "I", "T", "L", "N"],
            "there is no column 'H' (for 'history'); the rows have 'S', 'I', 'T', 'L', 'N'",
        ),
        (CELLS, ["I", "H", "T", "L", "N"], "there is no column 'S' (for the slot 'style')"),
        (CELLS, ["S", "I", "H", "T", "L", "N"], None),
    ],
)
def test_columns_missing_in_a_table_are_reported(cells: Cells, columns: list[str], missing: str | None) -> None:
    found = cells.missing_in(dict.fromkeys(columns, ""))
    assert found is None if missing is None else missing in str(found)


@pytest.mark.parametrize(
    ("label", "text", "rating"),
    [
        *[(None, None, None), (NAN, None, None), (True, None, True), (False, None, False), ("a", "a", None)],
        ({"role": "assistant", "content": "a"}, {"role": "assistant", "content": "a"}, None),
        ([{"role": "assistant", "tool_calls": []}], {"role": "assistant", "tool_calls": []}, None),
        *[(each, SlotError, None) for each in (5, [], ["a", "b"], {"role": "assistant"}, {"content": "a"})],
        ([{"role": "assistant", "content": "a"}] * 2, SlotError, None),
    ],
)
def test_labels_and_ratings_are_read_from_the_label_column(label: Any, text: Any, rating: bool | None) -> None:  # noqa: FBT001 - a case
    assert CELLS.rating_of({"L": label}) is rating
    if text is SlotError:
        message = f"^column 'L' contains a value of type {type(label).__name__}; expected response text, a message"
        with pytest.raises(SlotError, match=message):
            CELLS.label_of({"L": label})
    else:
        assert CELLS.label_of({"L": label}) == text


@pytest.mark.parametrize(
    ("value", "read"), [(None, None), ("", None), (" \n", None), ("[[1]]", [[1]]), ([["a"]], [["a"]]), (NAN, None)]
)
def test_history_and_tools_cells_are_lists_or_json(value: Any, read: Any) -> None:
    assert CELLS.history_of({"H": value}) == CELLS.tools_of({"T": value}) == read


def test_history_and_tools_cells_that_are_not_json_are_errors() -> None:
    with pytest.raises(HistoryError, match="^column 'H' is not a valid JSON list: "):
        CELLS.history_of({"H": "["})
    with pytest.raises(ToolsError, match="^column 'T' is not a valid JSON list: "):
        CELLS.tools_of({"T": "[" * 90_000})


def test_id_cells_are_read_and_unused_columns_are_known() -> None:
    assert [CELLS.name_of({"N": value}) for value in (None, "", NAN, "a", 0)] == [None, None, None, "a", "0"]
    row = dict.fromkeys(("tools", "audios", "videos", "images", "conversation", "conversations", "messages", "x"), "a")
    assert CELLS.unused(row) == ("messages", "conversations", "conversation", "images", "videos", "audios", "tools")
    assert (
        CELLS.unused({"T": "a", "tools": [], "images": None}) == Cells.of(Columns(), STYLE).unused({"tools": "a"}) == ()
    )

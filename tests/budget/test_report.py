"""The report of a budget with one change of each kind."""

import pickle

import pytest

from lazyprompt.budget.report import Account, ItemTokens, ListItems, Tokens, TrimReport

ITEMS = [
    ItemTokens("system", "system", 10, 10),
    ItemTokens("slot", "docs", 20, 0, 0),
    ItemTokens("slot", "docs", 30, 30, 1),
    ItemTokens("user", "history", 40, 0),
    ItemTokens("assistant", "history", 1000, 500),
    ItemTokens("user", "input", 5, 2),
]
SLOTS = {"system": Tokens(10, 10), "docs": Tokens(50, 30), "history": Tokens(1040, 500), "input": Tokens(5, 2)}
FATES = {
    5: ("summarized", "too old"),
    4: ("cut", "too long"),
    3: ("dropped", "the oldest"),
    1: ("dropped", "the worst"),
}
LISTS = {"docs": ListItems((1,), (0,), 1), "whole": ListItems((0, 1), (), 9)}
CHANGES = (
    "1 dropped (the oldest); 1 cut (too long); 1 summarized (too old); 1 of 2 items of docs dropped (the worst); "
    "2 without their signed thinking, which is void; it failed"
)


def make_report(slots: dict[str, Tokens] = SLOTS) -> TrimReport:
    account = Account(1110, 545, ITEMS, slots)
    return TrimReport(1000, FATES, lambda: account, "it failed", LISTS, void=(3, 4), ends_prefix=True)  # type: ignore[arg-type]  # literals


def test_as_dict_contains_all_fields_of_a_report() -> None:
    keys = ("index", "role", "slot", "fate", "reason", "before", "after", "item")
    fates = ["kept", "dropped", "kept", "dropped", "cut", "summarized"]
    reasons = ["", "the worst", "", "the oldest", "too long", "too old"]
    rows = [
        (at, item.role, item.slot, fate, reason, item.before, item.after, item.item)
        for at, (item, fate, reason) in enumerate(zip(ITEMS, fates, reasons, strict=True))
    ]
    framing = {"framing": Tokens(5, 3)}
    expected = {
        "max_tokens": 1000,
        "before": 1110,
        "after": 545,
        "slots": {slot: tokens._asdict() for slot, tokens in (SLOTS | framing).items()},
        "lists": {"docs": {"kept": [1], "dropped": [0]}, "whole": {"kept": [0, 1], "dropped": []}},
        "messages": [dict(zip(keys, row, strict=True)) for row in rows],
        "void": [3, 4],
        "ends_prefix": True,
        "failure": "it failed",
    }
    report = make_report()
    assert pickle.loads(pickle.dumps(report)).as_dict() == report.as_dict() == expected  # noqa: S301 - our own
    assert make_report(SLOTS | {"framing": Tokens(1, 1)}).as_dict() == expected
    assert (report.dropped, report.cut, report.summarized, bool(report)) == ((1, 3), (4,), (5,), True)


def test_str_and_repr_of_a_report_list_all_changes() -> None:
    assert str(make_report()) == f"1,110 → 545 of 1,000 tokens: {CHANGES}"
    assert repr(make_report()) == f"<TrimReport: {CHANGES}>"


@pytest.mark.parametrize(("most", "text"), [(None, "1,200 tokens"), (1500, "1,200 of 1,500 tokens")])
def test_a_report_without_changes_has_the_text_nothing_changed(most: int | None, text: str) -> None:
    report = TrimReport(most, {}, lambda: Account(1200, 1200, ITEMS, {"system": Tokens(1200, 1200)}))
    assert (str(report), bool(report)) == (f"{text}: nothing changed", False)
    assert report.slots == {"system": Tokens(1200, 1200)}
    assert (report.lists, report.void, report.ends_prefix, report.failure) == ({}, (), False, None)

"""The sums of a report of a simulated cache, and its conversion to a dict."""

from lazyprompt.caching import RULES, Break
from lazyprompt.caching.report import CachedCall, CacheReport

CALLS = (CachedCall(100, 0), CachedCall(300, 100, 120, 0, "a"), CachedCall(0, 0))
BREAKS = (
    Break(1, 0, "clock", 1, "10:05", "10:06", 40, "Pin it."),
    Break(1, 3, None, 2, "a", "b", 70, "Keep it.", thoughts=2),
    Break(2, None, "clock", 1, "10:06", "10:07", 60, "Pin it."),
)
REPORT = CacheReport(RULES["openai"], CALLS, BREAKS, ("a note",))


def test_the_fields_of_a_call_and_a_break_have_defaults() -> None:
    assert CALLS[0]._asdict() == {"total": 100, "read": 0, "shared": 0, "compared": None, "conversation": None}
    assert BREAKS[0].thoughts == 0
    assert [call.hit_rate for call in CALLS] == [0, 1 / 3, 0]


def test_a_report_sums_its_calls_and_breaks() -> None:
    assert (REPORT.total, REPORT.read, REPORT.hit_rate) == (400, 100, 0.25)
    assert [*REPORT.slots.items()] == [("clock", 100), ("message 3", 70)]
    empty = CacheReport(RULES["openai"], (), ())
    assert (empty.total, empty.read, empty.hit_rate, empty.slots, empty.notes) == (0, 0, 0, {}, ())
    by_size = CacheReport(RULES["openai"], CALLS, BREAKS[:2])
    assert [*by_size.slots] == ["message 3", "clock"]


def test_the_dict_of_a_report_has_all_its_fields() -> None:
    assert REPORT.as_dict() == {
        "rules": {"name": "openai", "source": RULES["openai"].source, "date": RULES["openai"].date},
        "hit_rate": 0.25,
        "total": 400,
        "read": 100,
        "slots": {"clock": 100, "message 3": 70},
        "breaks": [each._asdict() for each in BREAKS],
        "calls": [each._asdict() for each in CALLS],
        "notes": ["a note"],
    }

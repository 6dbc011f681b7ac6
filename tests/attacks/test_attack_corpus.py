from collections import Counter

import pytest

from attacks.attacks import FORGED, attacks, honest
from lazyprompt import ChatPrompter, Markers

FAMILIES = {name: Markers.for_model(name) for name in Markers.families()}


def test_attacks_are_unique_and_well_formed() -> None:
    every = attacks()
    assert len(every) >= 300
    assert [name for name, count in Counter(each.id for each in every).items() if count > 1] == []
    shapes = Counter((each.before, each.values, each.behind) for each in every)
    assert [shape for shape, count in shapes.items() if count > 1] == []
    assert {each.forges for each in every} == set(FORGED)
    assert all(each.text and len(each.values) <= 2 and each.id.startswith(f"{each.group}: ") for each in every)


def test_each_control_sequence_of_a_model_family_is_in_an_attack() -> None:
    """A new model family needs attacks of its own: add them to the corpus."""
    written = "\n".join(each.before + each.text + each.behind for each in attacks())
    sequences = {text for family in FAMILIES.values() for text in (*family.control_sequences, *family.stop)}
    assert sorted(text for text in sequences if text not in written) == []


def test_honest_texts_are_unique_and_at_least_80() -> None:
    assert len(honest()) >= 80
    assert len({each.id for each in honest()}) == len({each.text for each in honest()}) == len(honest())


@pytest.mark.parametrize("family", FAMILIES)
def test_honest_texts_stay_byte_for_byte_in_flat_text(family: str) -> None:
    prompter = ChatPrompter("Be kind.").with_markers(family)
    trims = "user" in FAMILIES[family].trim
    changed = [
        each.id
        for each in honest()
        if (each.text.strip() if trims else each.text) not in prompter.generate_prompt(each.text)
    ]
    assert changed == []

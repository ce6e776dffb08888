"""Places in a text that values have for themselves."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from hpd_core.requests.exclusive_rounds import Copied, ExclusivePlaces
from hpd_core.text.runs import lines_of, runs_of

NAMES = ("a", "b", "c", "d")
ALL = {name: frozenset(NAMES) - {name} for name in NAMES}


def places(*lines: str, rivals: dict[str, frozenset[str]] = ALL) -> ExclusivePlaces:
    return ExclusivePlaces(lines, rivals)


def test_the_likelier_value_keeps_its_place_and_the_other_has_what_is_left() -> None:
    found = places("Kashi Golean Original Cereal")
    assert found.settle([Copied("a", "Kashi Golean", 0.5), Copied("b", "Golean", 0.8)]) == ["a"]
    assert found.left_for("a") == ("Kashi", "Original Cereal")
    assert found.left_for("b") == ("Kashi Golean Original Cereal",)
    assert found.settle([Copied("a", "Kashi", 0.9)]) == []


def test_a_value_leaves_a_word_that_it_only_begins_to_others() -> None:
    found = places("16 oz bottle, Menswear", "pack of 1, for Men")
    values = [Copied("a", "1", 0.9), Copied("b", "16 oz", 0.5), Copied("c", "Men", 0.9), Copied("d", "Menswear", 0.5)]
    assert found.settle(values) == []
    assert (found.places["a"], found.places["c"]) == ((1, 8, 9), (1, 15, 18))


texts = st.text(st.sampled_from("ab -,日é\n"), max_size=24)


@given(texts, st.data())
def test_rounds_end_and_nobody_has_the_place_of_another(text: str, data: st.DataObject) -> None:
    lines = lines_of([text])
    pairs = data.draw(st.sets(st.sampled_from(list(combinations(NAMES, 2)))))
    rivals = {
        name: frozenset(other for pair in pairs if name in pair for other in pair if other != name) for name in NAMES
    }
    found, runs, open_names, rounds = ExclusivePlaces(lines, rivals), set(runs_of(lines)), list(NAMES), 0
    while open_names:
        values = []
        for name in open_names:
            left = runs_of(found.left_for(name))
            assert runs.issuperset(left), "no others than the document's"
            if text := data.draw(st.sampled_from(["", *left])):
                values.append(Copied(name, text, data.draw(st.sampled_from([0.0, 0.5, 1.0]))))
        contested, rounds = found.settle(values), rounds + 1
        assert len(contested) < len(open_names)
        open_names = contested
    assert rounds <= len(NAMES)
    for one, other in pairs:
        if one in found.places and other in found.places:
            (line, begin, end), (other_line, other_begin, other_end) = found.places[one], found.places[other]
            assert line != other_line or end <= other_begin or other_end <= begin

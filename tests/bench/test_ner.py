"""The marked sentences, how answers are scored, and the benchmark of named entities."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.ner import FILES, _likeliest, app
from bench.workloads.entities import TYPES, Sentence, anchored, read_marked, read_sentences, score
from hpd_core import Completion
from tests.tables import table

SENTENCES = read_sentences(FILES)


def test_marks_become_spans_also_within_others() -> None:
    found = read_marked("The [ORG Bank of [LOC Lisbon]] opens.")
    assert found.text == "The Bank of Lisbon opens."
    assert found.mentions == [("ORG", "Bank of Lisbon"), ("LOC", "Lisbon")]


@table(
    ("line", "message"),
    [("[PER Ada", "PER is not closed"), ("Ada]", "not opened"), ("[DOG Rex]", "'DOG' is no type: use one of PER")],
)
def test_what_is_marked_wrongly_is_named(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text(f"Fine.\n{line}\n")
    with pytest.raises(ValueError, match=f"en.txt:2: .*{message}"):
        read_sentences([tmp_path / "en.txt"])


def test_the_sample_is_as_its_page_says() -> None:
    rows = [line for path in FILES for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len({sentence.text for sentence in SENTENCES}) == 82
    nested = [span for each in SENTENCES for span in each.spans if any(_holds(other, span) for other in each.spans)]
    counts = {type_: sum(span[0] == type_ for each in SENTENCES for span in each.spans) for type_ in TYPES}
    page = (FILES[0].parent / "README.md").read_text(encoding="utf-8")
    for name, count in {**counts, "within others": len(nested), "sentences": len(SENTENCES)}.items():
        assert f"| {name} | {count} |" in page
    assert any(not sentence.spans for sentence in SENTENCES)


def _holds(outer: tuple[str, int, int], inner: tuple[str, int, int]) -> bool:
    return outer != inner and outer[1] <= inner[1] and inner[2] <= outer[2]


def test_who_names_all_mentions_is_right_everywhere() -> None:
    found = score(SENTENCES, [sentence.mentions for sentence in SENTENCES])
    assert (found.f1, found.precision, found.recall) == (1.0, 1.0, 1.0)
    assert score(SENTENCES, [[]] * len(SENTENCES)).f1 == 0.0


def test_only_the_same_type_and_words_are_right() -> None:
    sentence = read_marked("[PER Berg] left [LOC Bergen], then [PER Berg] came back.")
    assert score([sentence], [[("PER", "Berg"), ("PER", "Berg")]]).right == 2
    assert score([sentence], [[("PER", "Berg")] * 5]).answered == 5
    for wrong in [("LOC", "Berg"), ("PER", "Ber"), ("LOC", "bergen"), ("LOC", ""), ("PER", "Ada")]:
        assert score([sentence], [[wrong]]).right == 0


@given(
    sentence=st.sampled_from(SENTENCES),
    answers=st.lists(st.tuples(st.sampled_from(TYPES), st.sampled_from(["Graz", "Ada Okafor", "", "(", "Lagos"]))),
)
def test_nothing_is_counted_twice(sentence: Sentence, answers: list[tuple[str, str]]) -> None:
    spans = anchored(sentence.text, answers)
    assert len(spans) == len(set(spans)) == len(answers)
    found = score([sentence], [answers])
    assert found.right <= min(found.answered, found.marked)
    assert 0.0 <= found.f1 <= 1.0


def test_a_text_of_several_types_stays_where_it_is_likeliest() -> None:
    written = [Completion(value, status, probability=share) for value, status, share in _WRITTEN]
    assert _likeliest(["PER", "LOC", "ORG", "ORG"], written) == [("LOC", "Graz"), ("ORG", "Veltra")]


_WRITTEN = [("Graz", "value", 0.2), ("Graz", "value", 0.6), ("Veltra", "value", 0.1), (None, "truncated", 0.9)]


def test_the_benchmark_runs(tiny_model_dir: Path) -> None:
    found = CliRunner().invoke(app, ["--model", str(tiny_model_dir), "--sentences", "1", "--most", "4"])
    assert found.exit_code == 0, found.output
    rows = {line.split()[0]: line.split() for line in found.stdout.splitlines()[2:]}
    assert list(rows) == ["lists", "objects", "counted", "generate"]
    assert {len(row) for row in rows.values()} == {9}
    assert int(rows["generate"][5].replace(",", "")) == 4, "one batch, a forward pass for each token"

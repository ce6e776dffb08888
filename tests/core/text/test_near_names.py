"""Names that differ from known ones in their spelling alone are found, and what the difference is."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.text.near_names import NearNames, difference, fold_name
from tests.examples import examples
from tests.tables import table

KNOWN = (
    *("Café-Zubehör", "Shoes", "Coffee & Tea", "Home & Garden > Kitchen", "Lamps", "T-Shirts", "Children's Toys"),
    *("日本茶", "☕", "Ladders"),
)


@table(
    ("name", "hint"),
    [
        (unicodedata.normalize("NFD", "Café-Zubehör"), "did you mean 'Café-Zubehör' (differs in Unicode form)?"),
        ("Shoes ", "did you mean 'Shoes' (differs in spaces)?"),
        ("shoes", "did you mean 'Shoes' (differs in capitals)?"),
        (" SHOES", "did you mean 'Shoes' (differs in spaces and capitals)?"),
        ("ＳＨＯＥＳ", "did you mean 'Shoes' (differs in Unicode form and capitals)?"),
        ("Shoes\u200b", "did you mean 'Shoes' (differs in invisible characters)?"),
        ("\u200fShoes", "did you mean 'Shoes' (differs in invisible characters)?"),
        ("\ufeffShoes", "did you mean 'Shoes' (differs in invisible characters)?"),
        ("Shoes\x00", "did you mean 'Shoes' (differs in invisible characters)?"),
        ("☕\ufe0f", "did you mean '☕' (differs in invisible characters)?"),
        ("Coffee\xa0& Tea", "did you mean 'Coffee & Tea' (differs in spaces)?"),
        ("Coffee & Tea\u3000", "did you mean 'Coffee & Tea' (differs in spaces)?"),
        ("Coffee and Tea", "did you mean 'Coffee & Tea' (differs in 'and' or '&')?"),
        ("Coffee &amp; Tea", "did you mean 'Coffee & Tea' (differs in HTML entities)?"),
        ("Coffee &amp;amp; Tea", "did you mean 'Coffee & Tea' (differs in HTML entities)?"),
        ("Children&#39;s Toys", """did you mean "Children's Toys" (differs in HTML entities)?"""),
        ("Children’s Toys", """did you mean "Children's Toys" (differs in punctuation or signs)?"""),
        ("T\u2011Shirts", "did you mean 'T-Shirts' (differs in punctuation or signs)?"),
        ("Shoes/", "did you mean 'Shoes' (differs in punctuation or signs)?"),
        ("Shoes 👟", "did you mean 'Shoes' (differs in punctuation or signs)?"),
        ("Home & Garden/Kitchen", "did you mean 'Home & Garden > Kitchen' (differs in punctuation or signs)?"),
        ("Cafe-Zubehor", "did you mean 'Café-Zubehör' (differs in accents)?"),
        ("Home > Lighting > Lamps", "did you mean 'Lamps' (differs in the rest of the path)?"),
        ("kitchen", "did you mean 'Home & Garden > Kitchen' (differs in the rest of the path)?"),
        ("632 - Lamps", "did you mean 'Lamps' (differs in the rest of the path)?"),
        ("en:lamps", "did you mean 'Lamps' (differs in the rest of the path)?"),
        (
            "Shoes, Shoes > Boots, Lamps",
            "did you mean 'Lamps' (differs in the rest of the path) or 'Shoes' (differs in the rest of the path)?",
        ),
        ("['Shoes']", "did you mean 'Shoes' (differs in punctuation or signs)?"),
        ("Shoes;", "did you mean 'Shoes' (differs in punctuation or signs)?"),
        ("Shose", "did you mean 'Shoes'?"),
        ("Lader", "did you mean 'Ladders'?"),
        ("Hats", ""),
        ("茶", ""),
        ("", ""),
        (" ", ""),
        ("x" * 100_000, ""),
    ],
)
def test_the_name_that_was_meant(name: str, hint: str) -> None:
    assert NearNames(KNOWN).hint(name) == hint


@settings(max_examples=examples(100))
@given(st.text(max_size=30), st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]), st.sampled_from(["", " ", "\u200b"]))
def test_another_form_of_any_name_is_found(name: str, form: str, behind: str) -> None:
    spelled = unicodedata.normalize(form, name) + behind  # type: ignore[arg-type]
    assert fold_name(spelled) == fold_name(name)
    if spelled != name:
        assert name in {near.name for near in NearNames([name, "another"]).find(spelled)}
        assert difference(name, spelled)


def test_a_column_that_holds_no_categories_costs_little_a_row() -> None:
    schemas = [f"Home & Garden > Kitchen > Kitchen Tools > Utensils > Kind {number}" for number in range(3000)]
    near = NearNames(schemas)
    meant = "Home & Garden > Kitchen > Kitchen Tools > Utensil > Kind 2718"
    assert near.find(meant)[0].name == "Home & Garden > Kitchen > Kitchen Tools > Utensils > Kind 2718"
    searches = near.find.cache_info().misses
    messages = {near.missing(f"a text of row {number}") for number in range(5000)}
    assert near.find.cache_info().misses - searches == 1000, "then it is no misspelling any more"
    assert len(messages) == 5000
    assert near.missing("a text of row 4999") == (
        "no schema for category 'a text of row 4999'; there are schemas for "
        + ", ".join(map(repr, sorted(schemas)[:5]))
        + " and 2,995 more"
    )
    assert near.hint(meant), "who asks for few names, as a summary, still gets an answer"

"""Texts with more facts than the labels, so that an adapter learns to extract typed values from running text.

The labels of a catalog may hold few numbers, booleans and closed lists, and its texts few unlabelled facts. A
variant (schema_variants.py) may therefore ask for some of the invented SPECIFICATIONS as well, and a product's
text be continued with some of them:

    asked and stated      {Guarantee, number, months}     "... covered for 24 months ..."   ->  24
    asked and denied      {Foldable, boolean}             "... does not fold ..."           ->  false
    asked, not stated     {Guarantee, number, months}                                       ->  null
    stated, not asked     "Cable length: 1.8 m"
    in another language   "... mit 24 Monaten Garantie ..."                                 ->  24
    in another unit       "... parcel weighs 850 g ..."                                     ->  0.85, asked in kg

They need not suit the product: the adapter learns to find the asked value in the asked form. Still, every taught
answer must be true of the text:

    - a specification is neither asked nor stated if one of the catalog's own attributes may mean it (by its name), or
      if its statement holds one of their known values
    - what the product's own text may state is neither asked nor stated
    - of statements that may be about the same thing only one stands, and the others are not answered; nor is what a
      statement may say something of (`related` in specifications.yaml)

Everything is drawn from the given generator.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence

from adapters.recipe.specifications import LANGUAGES, OTHERS, SPECIFICATIONS, Specification, topic_words
from hpd_core import CategorySchema, Record
from pipelines.quality.scoring import fold
from pipelines.training.labelled_products import Items

_MAX_ASKED, _MAX_UNASKED, _MAX_PLEASANTRIES = 7, 6, 4
_STATED = 0.6  # share of the asked ones that a text states
_FOREIGN = 0.35  # share of the variants whose texts go on in another language
_MANY = 12  # so many specifications are enough to draw from
_SEPARATE, _FIRST = 0.5, 0.2  # shares of the texts: with a field of their own for them; with them before the rest
_FIELD_NAMES = ("description", "bullets", "details", "features", "specs", "info")
_JOINTS = ("\n", ". ", "; ", " | ", ", ", " - ")

_PLEASANTRIES = (
    "satisfaction guaranteed or your money back",
    "free shipping on orders over $35",
    "order before noon, dispatched today",
    "please contact us with any question",
    "thank you for shopping with us",
    "best seller",
    "our customers love it",
    "buy 2 and save 10%",
    "see our other listings",
    "premium quality at a fair price",
    "rated 4.7 out of 5",
    "as seen on TV",
    "image for illustration only",
    "easy returns within 30 days",
    "what are you waiting for",
    "makes everyday life easier",
    "you will wonder how you lived without it",
)
"""Other sentences of listings; no specification follows from them."""


_CATCH_ALL = frozenset(("specialty", "feature", "benefit", "description", "use", "function", "claim", "style", "name"))


def may_hold_anything(name: str) -> bool:
    """Return whether any statement may be a value of an attribute with this name, so that null is no longer certain."""
    return bool(topic_words(name) & _CATCH_ALL)


def suitable(schema: CategorySchema) -> list[Specification]:
    """Return the specifications that no attribute of the schema may mean."""
    taken = frozenset(word for attribute in schema.attributes for word in topic_words(attribute.name))
    return [item for item in SPECIFICATIONS if not item.topics & taken]


def draw_language(generator: random.Random) -> str | None:
    """Draw the language in which texts are continued; None is English."""
    return generator.choice(LANGUAGES) if generator.random() < _FOREIGN else None


def stated_in(language: str | None, free: Sequence[Specification]) -> tuple[str | None, Sequence[Specification]]:
    """Return the language and the specifications available in it; if these are too few, None (English) and all."""
    told = [item for item in free if language in item.languages]
    return (language, told) if len(told) >= _MANY else (None, free)


def draw_asked(free: Sequence[Specification], generator: random.Random) -> list[Specification]:
    """Draw the specifications that a variant asks for from `free`, which suit its catalog."""
    return generator.sample(free, generator.randint(min(1, len(free)), min(_MAX_ASKED, len(free))))


def continue_text(
    record: Record,
    asked: Sequence[Specification],
    unasked: Sequence[Specification],
    known: re.Pattern[str],
    generator: random.Random,
    language: str | None = None,
) -> tuple[Record, dict[str, Items]]:
    """Add statements to the record. Return it and the answers for `asked` that are certain.

    Args:
        unasked: other specifications that suit the catalog.
        known: pattern of the values of the catalog's own attributes in folded text.
        language: language of the statements, where they are available in it; None is English.
    """
    told = fold("\n".join(record.fields.values()))
    others = generator.sample(unasked, generator.randint(0, min(_MAX_UNASKED, len(unasked))))
    drawn = [(item, True) for item in asked] + [(item, False) for item in others]
    drawn = [(item, is_asked) for item, is_asked in drawn if not item.cues.search(told) and not item.units.search(told)]
    answers: dict[str, Items] = {}
    statements: list[tuple[Specification, Items, str]] = []
    for item, is_asked in drawn:
        if is_asked and generator.random() >= _STATED:
            answers[item.attribute.name] = None
            continue
        answer, text = item.draw(generator, language)
        folded = fold(text)
        if known.search(folded) or _is_about_another(item, folded, (other for other, _ in drawn)):
            continue
        statements.append((item, answer, text))
        if is_asked:
            answers[item.attribute.name] = answer
    if not statements:
        return record, answers
    told_now = _with_statements(record, statements, OTHERS.get(language or "", _PLEASANTRIES), generator)
    text = fold("\n".join(told_now.fields.values()))
    stated = {item.attribute.name for item, _, _ in statements}
    for item in asked:
        is_absent = answers.get(item.attribute.name, ()) is None
        if is_absent and (item.cues.search(text) or stated & item.related):
            del answers[item.attribute.name]
    return told_now, answers


def _is_about_another(item: Specification, folded: str, others: Iterable[Specification]) -> bool:
    return any(other is not item and other.cues.search(folded) for other in others)


def _with_statements(
    record: Record,
    statements: Sequence[tuple[Specification, Items, str]],
    pleasantries: Sequence[str],
    generator: random.Random,
) -> Record:
    joint = generator.choice(_JOINTS)
    texts = [_as_sentence(answer, text) if joint in ("\n", ". ") else text for _, answer, text in statements]
    texts += generator.sample(pleasantries, generator.randint(0, min(_MAX_PLEASANTRIES, len(pleasantries))))
    generator.shuffle(texts)
    added = joint.join(texts)
    fields = dict(record.fields)
    unused = [name for name in _FIELD_NAMES if name not in fields]
    chance = generator.random()
    # Of several fields each has its own meaning.
    if unused and (len(fields) != 1 or chance < _SEPARATE):
        fields[generator.choice(unused)] = added
    else:
        last = next(reversed(fields))
        parts = (added, fields[last]) if chance < _SEPARATE + _FIRST else (fields[last], added)
        fields[last] = joint.join(parts)
    return Record(record.id, record.category, fields)


def _as_sentence(answer: Items, text: str) -> str:
    """Capitalize `text`, unless that would change the value."""
    return text if any(text.startswith(item) for item in answer or ()) else text[0].upper() + text[1:]

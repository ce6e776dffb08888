"""Guesses, with reasons, of the columns that hold the id, the category and the texts to read."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from hpd_core.types import is_encodable
from pipelines.catalog.paths import last_name
from pipelines.profiling.columns import KnownFeed, ProfiledColumn, known_feed
from pipelines.profiling.key_values import KEY_NAMES, VALUE_NAMES

# As `_words` gives them: without capitals and accents. English, then German, French, Spanish and Italian.
_ID_NAMES = (
    *("product_id", "id", "sku", "asin", "item_id", "article_id", "artikelnummer", "artikelnr", "artikel_nr", "art_nr"),
    *("reference", "referencia", "codigo", "gtin", "ean", "upc", "uuid", "handle", "code"),
)
_CATEGORY_NAMES = (
    *(
        "category",
        "product_category",
        "categories",
        "product_type",
        "category_name",
        "type",
        "department",
        "class",
        "classification",
    ),
    *("subcategory", "taxonomy", "group", "kategorie", "categoria", "categorie"),
    *("warengruppe", "produktgruppe", "artikelgruppe", "produktart", "produkttyp", "rubrik", "rubrique", "famille"),
    *("segment", "node", "genre"),  # in French the last is whom it is for
)
_FIELD_NAMES = (
    *("title", "product_title", "name", "product_name", "headline", "subtitle"),
    *("titel", "bezeichnung", "artikelbezeichnung", "produktname", "titre", "nom", "titulo", "nombre", "titolo"),
    *("bullets", "bullet_points", "features", "highlights", "key_features", "merkmale"),
    *("description", "product_description", "long_description", "short_description", "body", "body_html", "details"),
    *("beschreibung", "kurzbeschreibung", "descripcion", "descrizione"),
    *("specifications", "specs", "attributes", "text", "content", "summary", "about"),
)
# What has few different values and is no category: an attribute, or how the product is sold.
_OTHER_NAMES = (
    *("brand", "manufacturer", "vendor", "seller", "store", "colour", "color", "size", "gender", "material", "country"),
    *("language", "lang", "locale", "currency", "status", "availability", "condition", "market", "source", "tags"),
    *("price", "stock", "quantity", "marke", "hersteller", "farbe", "grosse", "groesse", "geschlecht", "preis"),
    *("bestand", "lagerbestand", "marque", "couleur", "taille", "sexe", "prix", "marca", "talla", "genero", "precio"),
    *("colore", "taglia", "genere", "prezzo"),
)
_WAYS_OF_SALE = frozenset(
    ("simple", "variable", "variation", "configurable", "grouped", "external", "bundle", "virtual", "downloadable")
)
"""Product types of shop systems, which say how a product is sold, not what it is."""
_BRAND_NAMES = ("vendor", "manufacturer", "marke", "hersteller", "marque", "marca")
_LANGUAGE_NAMES = ("language", "lang", "locale", "language_code", "content_language", "sprache", "langue", "idioma")
_PATH_SEPARATORS = (" > ", ">", " / ", " | ", " » ", "/")
_PATH_SHARE = 0.5  # of a column's values that are parted so
_MAX_FIELDS = 6
_MAX_ID_CHARS = 64
_MAX_LANGUAGE_CHARS = 20
_MAX_CATEGORY_CHARS = 120
_FEW_ROWS = 20  # in fewer, what a column holds proves nothing
_REPEATED = 5  # rows a different value, from which on a column looks like a category
_WORDS_OF_A_TEXT = 3


@dataclass(frozen=True, slots=True)
class Guess:
    """Column guessed for a purpose, the reason, and other candidates.

    Attributes:
        separator: separator between the parts of a category's path.
        name: name of a field in the prompt, if not the column's.
        looked_at: profiled column, if `column` is a path to a part of it.
    """

    column: str
    reason: str
    others: Sequence[str] = ()
    separator: str | None = None
    name: str | None = None
    looked_at: str | None = None

    def is_of(self, column: str) -> bool:
        """Return whether the guess uses this column."""
        return column == (self.looked_at or self.column)


@dataclass(frozen=True, slots=True)
class Guesses:
    """Purposes guessed for a catalog's columns; None, or no field, if there is no candidate."""

    id: Guess | None
    category: Guess | None
    fields: Sequence[Guess]
    unused_texts: Sequence[str]
    language: Guess | None = None

    def purpose(self, column: str) -> str:
        """Return the purpose guessed for the column; "" if none."""
        guesses = [("id", self.id), ("category", self.category), ("language", self.language)]
        guesses += [("field", field) for field in self.fields]
        return next((purpose for purpose, guess in guesses if guess is not None and guess.is_of(column)), "")


def copies(columns: Sequence[ProfiledColumn], attributes: Iterable[str]) -> dict[str, str]:
    """Return attribute -> column of its name (or of a brand, by another word) that has a value in some row."""
    filled = {"_".join(_words(column.name)): column.name for column in columns if column.num_filled}
    found = {}
    for attribute in attributes:
        name = "_".join(_words(attribute))
        names = [name, *(_BRAND_NAMES if name == "brand" else ())]
        if column := next((filled[each] for each in names if each in filled), None):
            found[attribute] = column
    return found


def guess(columns: Sequence[ProfiledColumn]) -> Guesses:
    """Guess the purposes of a catalog's columns."""
    usable = [column for column in columns if column.is_everywhere and is_encodable(column.name)]
    language = _first([column for column in usable if _may_be_language(column)], lambda column: "its name says so")
    feed = known_feed([column.name for column in usable])
    if feed is not None and (known := _known(feed, usable)) is not None:
        return replace(known, language=language)
    category = _category(usable)
    taken = {each.column for each in (category, language) if each is not None}
    ids = [column for column in usable if column.name not in taken and _may_be_id(column)]
    product_id = _first(sorted(ids, key=lambda column: _rank(column.name, _ID_NAMES)), _id_reason)
    taken |= {product_id.column} if product_id else set()
    texts = [column for column in usable if column.name not in taken and _may_be_field(column)]
    texts.sort(key=lambda column: (_is_nested(column), _rank(column.name, _FIELD_NAMES), -column.mean_chars))
    names = {column.name for column in columns}
    chosen = [column for column in texts if _is_text(column) and not _is_half(column, names)][:_MAX_FIELDS]
    left_out = names - {column.name for column in chosen}
    chosen = [column for column in chosen if not _is_name_alone(column.name, left_out)]
    fields = [Guess(column.name, _field_reason(column)) for column in chosen]
    unused = [column.name for column in texts if column not in chosen]
    return Guesses(product_id, category, fields, unused, language)


def _category(usable: Sequence[ProfiledColumn]) -> Guess | None:
    columns = sorted(filter(_may_be_category, usable), key=_category_rank)
    found = _first(columns, _category_reason)
    return found and replace(found, separator=_path_separator(columns[0]))


def _path_separator(column: ProfiledColumn) -> str | None:
    """Return the separator of path parts if at least half of the values are paths, else None."""
    for separator in _PATH_SEPARATORS:
        parted = sum(separator in text for text in column.different)
        if parted and parted >= _PATH_SHARE * len(column.different):
            return separator.strip()
    return None


def _known(feed: KnownFeed, usable: Sequence[ProfiledColumn]) -> Guesses | None:
    """Return the guesses for a catalog in a published form; None if it has none of its fields."""
    filled = {column.name: column for column in usable if column.num_filled or not column.num_rows}

    def first(names: Sequence[str]) -> ProfiledColumn | None:
        return next((filled[name] for name in names if name in filled), None)

    reason = f"so called in {feed.name}"
    fields = {name: found for name, names in feed.fields.items() if (found := first(names)) is not None}
    if not fields:
        return None
    category, product_id = first(feed.category), first(feed.id)
    used = {column.name for column in (*fields.values(), category, product_id) if column is not None}
    others = [name for name in feed.category if name in filled and (category is None or name != category.name)]
    texts = [column for column in usable if column.name not in used and _may_be_field(column) and column.num_filled]
    return Guesses(
        None if product_id is None else Guess(product_id.name, reason),
        None if category is None else replace(_category_of(category, reason), others=others),
        [
            Guess(column.name, f"{reason}; {_field_reason(column)}", name=name, looked_at=column.name)
            for name, column in fields.items()
        ],
        [column.name for column in texts],
    )


def _category_of(column: ProfiledColumn, reason: str) -> Guess:
    """Guess the category from a column: a list's last (narrowest) item, or the first if values are mixed."""
    if column.kinds == {"list"}:
        return Guess(f"{column.name}[-1]", f"{reason}; the last of its list", looked_at=column.name)
    if "list" in column.kinds:
        return Guess(f"{column.name}[0]", f"{reason}; the first where there are several", looked_at=column.name)
    return Guess(column.name, reason, separator=_path_separator(column))


def _first(columns: Sequence[ProfiledColumn], reason: Callable[[ProfiledColumn], str]) -> Guess | None:
    if not columns:
        return None
    return Guess(columns[0].name, reason(columns[0]), [column.name for column in columns[1:]])


def _may_be_category(column: ProfiledColumn) -> bool:
    if not column.may_be("text") or column.mean_chars > _MAX_CATEGORY_CHARS or column.num_links:
        return False
    if {text.casefold() for text in column.different} <= _WAYS_OF_SALE and column.different:
        return False
    if _is_named(column.name, _CATEGORY_NAMES):
        return column.num_rows < _FEW_ROWS or not column.is_unique
    if _is_named(column.name, (*_OTHER_NAMES, *_FIELD_NAMES, *_ID_NAMES)):
        return False
    return (
        column.num_rows >= _FEW_ROWS
        and column.share_empty <= 0.1
        and 2 <= len(column.different) <= column.num_filled / _REPEATED
    )


def _category_rank(column: ProfiledColumn) -> tuple[int, int, float]:
    return (_rank(column.name, _CATEGORY_NAMES), round(column.share_empty * 10), len(column.different))


def _may_be_language(column: ProfiledColumn) -> bool:
    is_short = column.may_be("text") and column.mean_chars <= _MAX_LANGUAGE_CHARS
    return "_".join(_words(column.name)) in _LANGUAGE_NAMES and is_short and column.num_filled > 0


def _is_nested(column: ProfiledColumn) -> bool:
    return "." in column.name


def _may_be_id(column: ProfiledColumn) -> bool:
    """Return whether a column may be the id. It must not have empty cells, since such rows are refused."""
    if not column.may_be("text", "integer") or column.num_empty or column.mean_chars > _MAX_ID_CHARS:
        return False
    if column.num_links or column.num_spaced > 0.1 * column.num_rows:
        return False
    if _is_named(column.name, _ID_NAMES) or _words(column.name)[-1:] == ["id"]:
        return column.num_rows < _FEW_ROWS or len(column.different) > column.num_rows / 2
    return column.num_rows >= _FEW_ROWS and column.is_unique and column.may_be("text")


def _may_be_field(column: ProfiledColumn) -> bool:
    return bool(column.kinds) and "nested" not in column.kinds and column.num_links <= column.num_filled / 2


def _is_text(column: ProfiledColumn) -> bool:
    if not column.kinds <= {"text", "list"}:
        return False
    if not column.num_filled:
        return column.num_rows == 0 and _is_named(column.name, _FIELD_NAMES)
    if len(column.different) == 1 and column.num_filled >= _FEW_ROWS:
        return False  # the same in every row: it tells nothing of the product
    return _is_named(column.name, _FIELD_NAMES) or column.mean_words >= _WORDS_OF_A_TEXT


def _is_half(column: ProfiledColumn, names: Collection[str]) -> bool:
    """Return whether the column holds only the values of a list of pairs, whose names are in another column.

    Text below a title is prose, so `title` does not count as a name for it.
    """
    pair, _, key = column.name.rpartition(".")
    if "list" not in column.kinds or key not in VALUE_NAMES:
        return False
    titles = ("title",) if key in ("text", "content") else ()
    return any(f"{pair}.{name}" in names for name in KEY_NAMES if name not in titles)


def _is_name_alone(name: str, left_out: Collection[str]) -> bool:
    """Return whether a column holds only the names of a list of pairs, whose values are left out."""
    pair, _, key = name.rpartition(".")
    return bool(pair) and key in KEY_NAMES and any(f"{pair}.{value}" in left_out for value in VALUE_NAMES)


def _id_reason(column: ProfiledColumn) -> str:
    named = _is_named(column.name, _ID_NAMES) or _words(column.name)[-1:] == ["id"]
    if not column.num_rows:
        return "its name reads like an id"
    doubled = column.num_filled - len(column.different)
    content = "no two rows alike" if column.is_unique else f"{doubled:,} rows repeat another's"
    return f"{'its name reads like an id' if named else 'short, without spaces'}; no empty cell, {content}"


def _category_reason(column: ProfiledColumn) -> str:
    named = "its name reads like a category" if _is_named(column.name, _CATEGORY_NAMES) else "short texts that repeat"
    if not column.num_rows:
        return named
    empty = f", {column.num_empty:,} empty" if column.num_empty else ""
    return f"{named}; {len(column.different):,} different in {column.num_rows:,} rows looked at{empty}"


def _field_reason(column: ProfiledColumn) -> str:
    if not column.num_filled:
        return "its name reads like a product's text"
    empty = f", {column.share_empty:.0%} empty" if column.num_empty else ""
    kind = "a list, its items joined by line breaks; " if "list" in column.kinds else ""
    return f"{kind}{column.mean_chars:,.0f} characters on average{empty}"


def _rank(name: str, names: Sequence[str]) -> int:
    """Return the index of a name among the usual names; past the last if it is not one of them."""
    words = "_".join(_words(name))
    if words in names:
        return names.index(words)
    return len(names) + (0 if _is_named(name, names) else 1)


def _is_named(name: str, names: Iterable[str]) -> bool:
    """Return whether a column's name is one of these, or ends or begins with one."""
    words = "_".join(_words(name))
    return any(words == each or words.endswith(f"_{each}") or words.startswith(f"{each}_") for each in names)


def _words(name: str) -> list[str]:
    """Split a column's name into words: productId, product-id and "Product ID" are equal, as are Größe and GROSSE."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", last_name(name))
    letters = unicodedata.normalize("NFKD", parted.casefold())
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return [word for word in re.split(r"[^\w]+|_", plain) if word]

"""Labels in the wanted language, with those in other languages as synonyms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_FIRST_CHOICE = "en"


def in_language(labels: Mapping[str, str], language: str | None) -> str:
    """Return the label of a locale ("de_DE"), else of its language, else in English, else the first; "" if none."""
    labels = {locale: label for locale, label in labels.items() if label}
    for wanted in filter(None, (language, _FIRST_CHOICE)):
        folded = _folded(wanted)
        for is_meant in (_folded, _tongue):
            for locale, label in labels.items():
                if is_meant(locale) == (folded if is_meant is _folded else _tongue(wanted)):
                    return label
    return next(iter(labels.values()), "")


def has_language(locales: Sequence[str], language: str) -> bool:
    """Return whether one of the locales has the language."""
    return _tongue(language) in map(_tongue, locales)


def other_labels(labels: Mapping[str, str], label: str) -> tuple[str, ...]:
    """Return the labels of other locales that differ from `label`, each once."""
    return tuple(dict.fromkeys(other for other in labels.values() if other and other != label))


def _folded(locale: str) -> str:
    return locale.replace("-", "_").casefold()


def _tongue(locale: str) -> str:
    return _folded(locale).split("_")[0]

"""Hints of a text on its decimal sign: units, the words of its language, and how that language writes numbers.

The separators of each language come from CLDR, through Babel. The language of a text is inferred from frequent words
and letters alone: a product has twenty words, half of them names, and only comma or dot has to be decided. General
detectors (trained on sentences) are megabytes and guess if there is no evidence. This module then returns nothing. It
also returns nothing for a language that is written with both signs (Spanish).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache

from babel import Locale

SPACES = " \u00a0\u202f\u2009"

# Frequent words, also those of product texts, that tell the comma's languages from the dot's. Not the English ones that
# stand in everybody's titles: box, set, black.
_WORDS = {
    "en": "the with and for from of your this is are by or not all our can made each size weight height length "
    "width capacity volume green grey gray wood piece pieces inch inches feet wheat flour water battery "
    "charger cooling heating diameter portable large colour pounds ounces load rate output input speed range "
    "cup cups bottle bottles temperature thickness hoist brass copper pipe fitting material",
    "de": "der das und mit für von aus ist sind nicht ein eine einer eines auch bei zum zur oder nur sehr ohne auf "
    "dem des wird kann durch bis schwarz weiß weiss rot blau grün grau gewicht nettogewicht größe höhe breite "
    "länge tiefe leistung inhalt farbe stück akku maße traglast volumen spannung durchmesser liter gramm holz "
    "stahl edelstahl kabellos tragkraft fassungsvermögen nutzlast",
    "fr": "le les des une est avec pour dans sur par aux et ou sans très votre cette poids hauteur largeur longueur "
    "capacité puissance couleur noir blanc rouge bleu vert gris litres bois acier pièces taille batterie",
    "es": "el los las una con para por del y sin peso altura ancho capacidad potencia negro blanco rojo azul verde "
    "gris litros madera acero piezas tamaño batería",
    "it": "il gli della delle con per una nel alla senza peso altezza larghezza lunghezza capacità potenza nero "
    "bianco rosso blu verde grigio litri legno acciaio pezzi batteria",
    "pt": "os uma com para do da sem peso altura largura comprimento capacidade potência preto branco vermelho azul "
    "verde cinza litros madeira aço peças bateria",
    "nl": "het een met voor van zijn niet en bij zonder gewicht hoogte breedte lengte vermogen capaciteit zwart wit "
    "rood blauw groen grijs hout staal stuks",
    "sv": "och med för av är inte till utan vikt höjd bredd längd effekt kapacitet svart vit röd blå grön grå trä stål",
    "da": "og med til af er ikke uden vægt højde bredde længde effekt kapacitet sort hvid rød blå grøn grå træ stål",
    "nb": "og med til av er ikke uten vekt høyde bredde lengde effekt kapasitet svart hvit rød blå grønn grå tre stål",
    "fi": "ja kanssa on ei sekä ilman paino korkeus leveys pituus teho musta valkoinen punainen sininen vihreä harmaa",
    "pl": "oraz dla jest nie z ze bez waga wysokość szerokość długość moc pojemność czarny biały czerwony niebieski",
    "cs": "pro je není bez hmotnost výška šířka délka výkon kapacita objem černá bílá červená modrá",
    "tr": "ve ile için bir bu ağırlık yükseklik genişlik uzunluk güç kapasite siyah beyaz kırmızı mavi",
    "hu": "és egy az nem súly magasság szélesség hossz teljesítmény kapacitás fekete fehér piros kék",
    "ro": "și cu pentru din este nu fără greutate înălțime lățime lungime putere capacitate negru alb roșu albastru",
}
# Locales used for a language, if not just the one of its own name; if they differ, it says nothing.
_LOCALES = {"es": ("es", "es_419"), "pt": ("pt", "pt_PT")}
# Scripts, and letters that only some languages have: each language stands for all that write numbers alike.
_LETTERS = (
    ("ru", re.compile("[Ѐ-ӿ]")),
    ("el", re.compile("[Ͱ-Ͽ]")),
    ("ja", re.compile("[぀-ヿ㐀-鿿]")),
    ("ko", re.compile("[가-힣]")),
    ("th", re.compile("[ก-๛]")),
    ("he", re.compile("[א-ת]")),
    ("hi", re.compile("[ऀ-ॿ]")),
    ("vi", re.compile("[ạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹđ]")),
    ("de", re.compile("[äöüß]")),
    ("sv", re.compile("[åøæ]")),
    ("cs", re.compile("[čšžřěůťďňľĺŕąęłńśźżćőűğışțșăâîãõ]")),
    ("fr", re.compile("[èêëàùçœ]")),
)
_WORD = re.compile(r"[^\W\d_]{2,}|y")

# Of "small" ones thousands are usual, of "large" ones thousandths, too; thousandths of "whole" ones are not used.
_UNITS = {
    "whole": """
    mah btu rpm u upm lm lumen lumens dpi iu pcs pc piece pieces stk stück pièces pezzi piezas peças stuks szt page
    pages seiten blatt sheets sheet words wörter px pixel pixels cycles zyklen rounds umdrehungen users 毫安 毫安时 流明
    мач об
    """,
    "small": """
    g gr gm gram grams gramm gramme grammes grammi gramos grammo mg µg mcg ml cc ccm cl ms hz w watt watts wp va lux
    lx kcal cal kj pa ie points pt hours hour hrs std stunden days tage min minutes minuten eur usd gbp chf dollar
    dollars euro euros yen rs inr kr zł kč ft² sqft 克 毫升 瓦 г мл вт
    """,
    "large": """
    kg kilo kilos kilogram kilograms kilogramm t to tonne tonnes ton tons l lt ltr liter litre liters litres litros
    litri cm dm m mm km meter meters metre metres inch inches in zoll pouces pulgadas pollici ft feet foot yd yard
    yards mi mile miles oz ounce ounces lb lbs pound pounds gal gallon gallons ghz mhz khz kw kwh wh ah tb gb mb kb
    ct carat carats karat s sec seconds sekunden v volt volts kv a amp amps bar psi n nm kn ohm db c f k grad
    degrees кг л м см мм
    ° % " ' ” ″ ′
    """,
}
_SIGNS_OF_MONEY = "€$£¥₹₽₺₩₴฿"
_UNIT = re.compile(rf"[{SPACES}-]?([^\W\d_]+[²³]?|[\"”″'′°%{_SIGNS_OF_MONEY}])")
_WORD_TOO = re.compile(rf"[{SPACES}](?:in|to|a)[{SPACES}][^\W\d_]")  # "1.5 in red"
_SIZES = {
    **{unicodedata.normalize("NFKC", name): size for size, names in _UNITS.items() for name in names.split()},
    **dict.fromkeys(_SIGNS_OF_MONEY, "small"),
}
_MONEY_BEFORE = re.compile(rf"(?:[{_SIGNS_OF_MONEY}]|\b(?:EUR|USD|GBP|CHF|INR|Rs\.?|kr))[{SPACES}]?\Z")


def unit_size(text: str, start: int, end: int) -> str | None:
    """Return the size of the unit of the number text[start:end]; None if there is no known unit.

    "small" if thousands of it are usual (grams, money), "whole" if thousandths are not (mAh, pages), "large" if both
    are (kg, inch, GHz).
    """
    match = _UNIT.match(text, end)
    if match and _WORD_TOO.match(text, end):
        match = None
    name = unicodedata.normalize("NFKC", match.group(1)).lower() if match else ""
    return "small" if _MONEY_BEFORE.search(text, max(0, start - 5), start) else _SIZES.get(name)


def decimal_signs(texts: Iterable[str]) -> frozenset[str]:
    """Return the decimal signs, "," and ".", of the texts' likely languages; empty without evidence."""
    votes: Counter[str] = Counter()
    for language, count in _languages(texts).items():
        for sign in _symbols(language, "decimal"):
            # A word that several languages of one sign share is one word.
            votes[sign] = max(votes[sign], count)
    most = max(votes.values(), default=0)
    return frozenset(sign for sign, count in votes.items() if count * 2 >= most)


def groups_with_spaces(texts: Iterable[str]) -> bool:
    """Return whether the texts' language puts spaces between thousands."""
    counts = _languages(texts)
    best = max(counts.values(), default=0)
    return bool(best) and all(_symbols(name, "group")[0].isspace() for name, count in counts.items() if count == best)


def _languages(texts: Iterable[str]) -> Counter[str]:
    words = [word for text in texts for word in _WORD.findall(text)]
    votes: Counter[str] = Counter()
    with_letters: dict[str, set[str]] = {}
    for word in dict.fromkeys(words):
        folded = word.lower()
        votes.update(_languages_of_word().get(folded, ()))
        if not folded.isascii():
            for language, letters in _LETTERS:
                if letters.search(folded):
                    with_letters.setdefault(language, set()).add(word)
                    break
    for language, found in with_letters.items():
        # One capitalised word may be a name of any country's.
        names_only = len(found) == 1 and next(iter(found))[0].isupper()
        votes[language] += 0 if names_only else len(found)
    return +votes


@cache
def _languages_of_word() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for language, words in _WORDS.items():
        for word in words.split():
            found[word] = (*found.get(word, ()), language)
    return found


@cache
def _symbols(language: str, name: str) -> tuple[str, ...]:
    """Return CLDR's symbols of this name in all locales of the language."""
    locales = _LOCALES.get(language, (language,))
    return tuple(Locale.parse(locale).number_symbols["latn"][name] for locale in locales)

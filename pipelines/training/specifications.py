"""Invented specifications, so that an adapter learns to read types off running text.

The labels of a catalog may hold few numbers, booleans and closed lists, and its texts little but what is labelled. A
variant (variants.py) may therefore ask for some of the specifications below as well, and a product's text be continued
with some of them:

    asked and stated      {Guarantee, number, months}     "... covered for 24 months ..."   ->  24
    asked and denied      {Foldable, boolean}             "... does not fold ..."           ->  false
    asked, not stated     {Guarantee, number, months}                                       ->  null
    stated, not asked     "Cable length: 1.8 m"

They need not suit the product; what is learned is to find what is asked, in the form that is asked for. Nothing is
stated that could be the value of one of the catalog's own attributes. Everything is drawn from the given generator.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hpd_core import Attribute, Record
from pipelines.scoring import fold
from pipelines.training.data import Items, words_pattern

_MAX_ASKED, _MAX_UNASKED, _MAX_PLEASANTRIES = 7, 6, 4
_STATED, _TRUE = 0.6, 0.6  # shares: of the asked ones that a text states, of the booleans that are true
_NAMED = 0.35  # share of the statements that name the attribute ("Guarantee: 24 months")
_SEPARATE, _FIRST = 0.5, 0.2  # shares of the texts: with a field of their own for them; with them before the rest
_FIELD_NAMES = ("description", "bullets", "details", "features", "specs", "info")
_JOINTS = ("\n", ". ", "; ", " | ", ", ", " - ")
_NAMED_LINES = ("{name}: {text}", "{name}: {text}", "{name} - {text}", "{name} {text}", "{name}={text}")

Statement = tuple[Items, str]
"""An answer, and a text from which it follows."""


@dataclass(frozen=True, slots=True)
class Specification:
    """Something that a product may state: the attribute, and how to draw an answer with its statement."""

    attribute: Attribute
    draw: Callable[[random.Random], Statement]


def draw_specifications(generator: random.Random, taken: Sequence[str]) -> list[Specification]:
    """What a variant asks for besides its own attributes; none of the names in `taken`."""
    names = {name.casefold() for name in taken}
    free = [item for item in SPECIFICATIONS if item.attribute.name.casefold() not in names]
    return generator.sample(free, generator.randint(1, min(_MAX_ASKED, len(free))))


def specify(
    record: Record, asked: Sequence[Specification], known: re.Pattern[str], generator: random.Random
) -> tuple[Record, dict[str, Items]]:
    """The record with statements added, and the answers for `asked`, where they are certain.

    Args:
        known: finds the values of the catalog's own attributes in folded text; statements that hold one are left out.
    """
    answers: dict[str, Items] = {}
    statements: list[str] = []
    names = {item.attribute.name for item in asked}
    unasked = [item for item in SPECIFICATIONS if item.attribute.name not in names]
    told = fold("\n".join(record.fields.values()))
    for item in [*asked, *generator.sample(unasked, generator.randint(0, min(_MAX_UNASKED, len(unasked))))]:
        is_asked = item.attribute.name in names
        if words_pattern(map(fold, [item.attribute.name, *(item.attribute.values or ())])).search(told):
            continue  # the product itself may state it
        if is_asked and generator.random() >= _STATED:
            answers[item.attribute.name] = None
            continue
        answer, text = item.draw(generator)
        if known.search(fold(text)):
            continue
        statements.append(text)
        if is_asked:
            answers[item.attribute.name] = answer
    if not statements:
        return record, answers
    statements += generator.sample(_PLEASANTRIES, generator.randint(0, _MAX_PLEASANTRIES))
    generator.shuffle(statements)
    joint = generator.choice(_JOINTS)
    added = joint.join(text[0].upper() + text[1:] if joint in ("\n", ". ") else text for text in statements)
    fields = dict(record.fields)
    last = next(reversed(fields))
    name = generator.choice([name for name in _FIELD_NAMES if name not in fields])
    chance = generator.random()
    if chance < _SEPARATE:
        fields[name] = added
    elif chance < _SEPARATE + _FIRST:
        fields[last] = f"{added}{joint}{fields[last]}"
    else:
        fields[last] = f"{fields[last]}{joint}{added}"
    return Record(record.id, record.category, fields), answers


def _state(name: str, text: str, phrases: Sequence[str], generator: random.Random) -> str:
    """`text` in one of the phrases, or behind the attribute's name."""
    if not phrases or generator.random() < _NAMED:
        return generator.choice(_NAMED_LINES).format(name=name, text=text)
    return generator.choice(phrases).format(text)


def _number(name: str, unit: str, low: float, high: float, *phrases: str) -> Specification:
    """`unit`: the one asked for, and after slashes other ways to write it. Decimals are those of `low`."""
    asked, *others = unit.split("/")
    decimals = len(str(low).partition(".")[2])

    def draw(generator: random.Random) -> Statement:
        number = f"{generator.uniform(low, high):.{decimals}f}"
        written = generator.choice([asked, asked, *others])
        joint = generator.choice(["", " "]) if len(written) <= 3 else " "
        return [number], _state(name, f"{number}{joint}{written}".strip(), phrases, generator)

    return Specification(Attribute(name=name, type="number", unit=asked or None), draw)


def _boolean(name: str, yes: Sequence[str], no: Sequence[str]) -> Specification:
    def draw(generator: random.Random) -> Statement:
        is_true = generator.random() < _TRUE
        word = generator.choice(("yes", "Yes", "true", "✓") if is_true else ("no", "No", "false", "✗"))
        return ["true" if is_true else "false"], _state(name, word, yes if is_true else no, generator)

    return Specification(Attribute(name=name, type="boolean"), draw)


def _enum(name: str, phrases: Mapping[str, Sequence[str]]) -> Specification:
    """Per member the ways to say it; the member itself may stand alone."""

    def draw(generator: random.Random) -> Statement:
        member = generator.choice(list(phrases))
        return [member], _state(name, member, phrases[member], generator)

    return Specification(Attribute(name=name, type="enum", values=tuple(phrases)), draw)


def _list(name: str, members: str, *phrases: str) -> Specification:
    """`members` separated by commas."""
    pool = members.split(", ")

    def draw(generator: random.Random) -> Statement:
        chosen = generator.sample(pool, generator.randint(1, 4))
        *most, last = chosen
        text = generator.choice((f"{', '.join(most)} and {last}" if most else last, ", ".join(chosen)))
        return chosen, _state(name, text, phrases, generator)

    return Specification(Attribute(name=name, multiple=True), draw)


def _string(name: str, draw_text: Callable[[random.Random], str], *phrases: str) -> Specification:
    def draw(generator: random.Random) -> Statement:
        text = draw_text(generator)
        return [text], _state(name, text, phrases, generator)

    return Specification(Attribute(name=name), draw)


def _code(generator: random.Random) -> str:
    letters = "".join(generator.sample("ABCDEFGHKLMNPRSTVWXZ", generator.randint(1, 3)))
    number = generator.randint(10, 99999)
    return letters + generator.choice(("", "-", " ")) + str(number) + generator.choice(("", "", "-B", "X", "/2"))


def _name(generator: random.Random) -> str:
    syllables = ("ba", "dor", "fen", "gal", "hal", "ki", "lo", "mer", "nor", "pra", "quin", "ri", "sol", "tam", "vel")
    word = "".join(generator.sample(syllables, generator.randint(2, 3))).capitalize()
    return word + generator.choice(("", "", " & Sons", " Works", " Studio", " II"))


def _one_of(members: str) -> Callable[[random.Random], str]:
    pool = members.split(", ")
    return lambda generator: generator.choice(pool)


_MATERIALS = (
    "oak, walnut, beech, steel, brushed aluminium, brass, cast iron, glass, marble, leather, suede, cotton, linen, "
    "wool, nylon, polyester, silicone, rubber, bamboo, cork, ceramic, porcelain, acrylic, carbon fibre, velvet, rattan"
)
_SHADES = (
    "black, white, cream, navy, sky blue, forest green, olive, burgundy, red, coral, pink, lilac, mustard, gold, "
    "silver, charcoal, beige, brown, matte black, midnight blue, off-white, rose gold, mint green, sand, anthracite"
)
_PARTS = ("handle", "frame", "lid", "strap", "sole", "case", "lining", "seat", "base", "filling", "cap", "rim")


def _parts() -> list[Specification]:
    """What the parts of a thing are made of, and their colours: it is the part that tells them apart."""
    made: list[Specification] = []
    for part in _PARTS:
        phrases = (f"{{}} {part}", f"{part} made of {{}}", f"{part} in {{}}", f"with a {part} of {{}}")
        made.append(_string(f"{part.capitalize()} material", _one_of(_MATERIALS), *phrases))
        coloured = (f"{{}} {part}", f"{part} in {{}}", f"the {part} is {{}}")
        made.append(_string(f"Colour of the {part}", _one_of(_SHADES), *coloured))
    return made


_PLEASANTRIES = (
    "a great gift",
    "satisfaction guaranteed or your money back",
    "free shipping on orders over $35",
    "order before noon, dispatched today",
    "please contact us with any question",
    "thank you for shopping with us",
    "colours may differ from the picture",
    "new arrival",
    "best seller",
    "our customers love it",
    "buy 2 and save 10%",
    "see our other listings",
    "a must-have for every home",
    "premium quality at a fair price",
    "designed with you in mind",
    "rated 4.7 out of 5",
    "as seen on TV",
    "limited stock",
    "image for illustration only",
    "easy returns within 30 days",
    "from a family business since 1987",
    "what are you waiting for",
    "makes everyday life easier",
    "you will wonder how you lived without it",
)
"""What listings say besides; none of the specifications follows from it."""

SPECIFICATIONS: Sequence[Specification] = (
    *_parts(),
    _number("Guarantee", "months/month", 6, 60, "covered for {}", "{} guarantee", "guaranteed for {}"),
    _number("Cable length", "m/metres/meters", 0.5, 9.9, "{} cable", "with a {} long cable", "cable of {}"),
    _number("Item width", "cm/centimetres", 5, 240, "{} wide", "{} in width", "W {}"),
    _number("Item depth", "cm/centimetres", 5, 120, "{} deep", "{} in depth", "D {}"),
    _number("Diameter", "mm/millimetres", 3, 400, "{} across", "{} in diameter", "ø {}"),
    _number("Thickness", "mm/millimetres", 0.2, 40, "{} thick", "just {} thin"),
    _number("Shipping weight", "kg/kilograms", 0.1, 40, "ships at {}", "{} packed", "{} in its carton"),
    _number("Maximum load", "kg/kilos", 2, 300, "carries up to {}", "holds {}", "safe up to {}"),
    _number("Charging time", "minutes/min", 15, 600, "charges in {}", "full charge within {}", "{} to charge"),
    _number("Noise level", "dB/decibels", 18, 95, "only {} loud", "quiet at {}", "{} in operation"),
    _number("Operating range", "m/metres", 2, 300, "works from {} away", "reaches {}", "signal up to {}"),
    _number("Screen size", "inch/inches/in", 1.5, 85, "{} screen", "{} display", "a display of {}"),
    _number("Storage", "GB/gigabytes", 4, 2048, "{} of storage", "stores {}", "{} built in"),
    _number("Number of pieces", "", 2, 500, "{} pieces", "{}-piece set", "set of {}", "{} parts"),
    _number("Number of drawers", "", 1, 12, "{} drawers", "with {} drawers"),
    _number("Number of pockets", "", 1, 14, "{} pockets", "with {} pockets inside"),
    _number("Speed levels", "", 2, 12, "{} speeds", "runs at {} speeds", "{} speed settings"),
    _number("Thread count", "", 120, 1200, "{} thread count", "woven with {} threads"),
    _number("Serving size", "g/grams", 5, 250, "{} per serving", "one serving is {}", "serve {}"),
    _number("Energy", "kcal/calories", 20, 600, "{} a portion", "{} per 100 g", "provides {}"),
    _number("Shelf life", "days/day", 5, 730, "keeps for {}", "best within {}", "lasts {} unopened"),
    _number("Blade length", "cm", 4, 45, "{} blade", "blade of {}", "a {} long blade"),
    _number("Tank size", "litres/l/L", 0.2, 12, "{} tank", "tank holds {}", "tank of {}"),
    _number("Hose length", "m/metres", 1.2, 50, "{} hose", "hose of {}"),
    _number("Coverage", "m²/square metres", 2, 200, "enough for {}", "covers {}", "for rooms up to {}"),
    _number("Pressure", "bar", 1, 200, "{} of pressure", "works at {}", "up to {}"),
    _number("Magnification", "x", 2, 60, "{} zoom", "magnifies {}", "{} magnification"),
    _number("Frequency", "Hz/hertz", 20, 240, "{} refresh", "runs at {}"),
    _number("Wheel size", "inch/inches", 8, 29, "{} wheels", "rolls on {} wheels"),
    _number("Seats", "", 1, 8, "seats {}", "room for {} people", "{} seats"),
    _number("Oldest age", "years", 3, 99, "up to {} old", "until {}"),
    _number("Warm-up time", "seconds/sec/s", 5, 180, "ready in {}", "hot after {}", "{} to warm up"),
    _number("Year", "", 1950, 2026, "from {}", "introduced in {}", "model year {}", "{} edition"),
    _boolean("Foldable", ("folds flat", "folds away easily", "foldable"), ("does not fold", "not foldable")),
    _boolean(
        "Rechargeable",
        ("rechargeable", "recharge it by USB", "built-in rechargeable battery"),
        ("runs on disposable batteries", "cannot be recharged", "not rechargeable"),
    ),
    _boolean(
        "Machine washable",
        ("machine washable", "machine wash cold", "wash at 30"),
        ("hand wash only", "dry clean only"),
    ),
    _boolean("Microwave safe", ("microwave safe", "fit for the microwave"), ("do not microwave", "not for microwaves")),
    _boolean("Handmade", ("made by hand", "handmade", "handcrafted"), ("factory made", "machine made")),
    _boolean("Stackable", ("stacks neatly", "stackable"), ("cannot be stacked", "not stackable")),
    _boolean(
        "Remote control",
        ("remote control in the box", "works by remote", "comes with a remote"),
        ("without remote control", "no remote", "remote sold separately"),
    ),
    _boolean("Bluetooth", ("Bluetooth 5.0", "pairs over Bluetooth"), ("no Bluetooth", "without Bluetooth")),
    _boolean(
        "Assembly required",
        ("some assembly required", "needs to be put together", "self-assembly"),
        ("no assembly needed", "comes fully assembled", "ready to use"),
    ),
    _boolean("Lockable", ("with a lock and two keys", "lockable"), ("does not lock", "no lock")),
    _boolean("Reversible", ("reversible", "use it on both sides"), ("one-sided", "not reversible")),
    _boolean("Hypoallergenic", ("hypoallergenic", "kind to allergies"), ("not hypoallergenic", "may cause allergies")),
    _boolean("Gluten free", ("gluten free", "no gluten", "without gluten"), ("contains gluten", "contains wheat")),
    _boolean("Sugar free", ("sugar free", "no sugar", "zero sugar"), ("contains sugar", "with cane sugar")),
    _boolean("Recyclable", ("100% recyclable", "can be recycled"), ("not recyclable", "cannot be recycled")),
    _boolean("Oven safe", ("oven safe", "goes into the oven"), ("not for the oven", "keep out of ovens")),
    _boolean("Child lock", ("child lock", "locked against children"), ("no child lock", "without child lock")),
    _boolean("Backlit", ("backlit", "backlit keys"), ("no backlight", "not backlit")),
    _boolean(
        "Batteries included",
        ("batteries included", "with 2 AA batteries", "battery in the box"),
        ("batteries not included", "batteries sold separately", "without batteries"),
    ),
    _boolean("Non-slip", ("non-slip", "anti-slip base", "does not slip"), ("slippery when wet", "no grip")),
    _boolean("Quick drying", ("dries quickly", "quick-dry"), ("slow to dry", "dries slowly")),
    _boolean("Breathable", ("breathable", "lets the skin breathe"), ("not breathable", "airtight")),
    _boolean("Removable cover", ("cover comes off", "removable cover"), ("fixed cover", "cover is sewn on")),
    _boolean("Wall mountable", ("can be hung on a wall", "wall mountable"), ("not for walls", "no wall mount")),
    _boolean("Auto shut-off", ("switches itself off", "auto shut-off"), ("stays on until switched off",)),
    _boolean("Solar powered", ("powered by the sun", "solar powered"), ("no solar panel", "not solar powered")),
    _boolean("Limited edition", ("limited edition", "a limited run"), ("regular edition", "not limited")),
    _boolean(
        "Subscription required", ("needs a subscription", "subscription required"), ("no subscription", "no fees")
    ),
    _boolean("Safe for septic tanks", ("septic safe",), ("not septic safe", "do not flush")),
    _enum(
        "Skill level",
        {
            "beginner": ("for beginners", "easy to start with", "your first one"),
            "intermediate": ("for intermediate users", "for the advanced beginner"),
            "expert": ("for experts", "for professionals", "expert level"),
        },
    ),
    _enum(
        "Season",
        {
            "spring": ("for spring days",),
            "summer": ("for the summer", "made for hot days", "summer style"),
            "autumn": ("fall collection", "for autumn"),
            "winter": ("for the winter", "for cold winters"),
            "all year": ("all-season", "for every season", "year-round"),
        },
    ),
    _enum(
        "Shape",
        {
            "round": ("round shape", "a circle", "circular"),
            "square": ("square shape", "with four equal sides"),
            "rectangular": ("rectangle", "oblong"),
            "oval": ("oval-shaped",),
            "heart": ("heart-shaped", "in the shape of a heart"),
        },
    ),
    _enum(
        "Pattern",
        {
            "plain": ("in one solid colour", "solid", "no pattern"),
            "striped": ("with stripes", "stripe print"),
            "checked": ("plaid", "checks"),
            "floral": ("flower print", "with flowers"),
            "polka dot": ("with dots", "dotted"),
        },
    ),
    _enum(
        "Firmness",
        {
            "soft": ("soft to lie on", "softer feel"),
            "medium": ("medium firm", "neither hard nor soft"),
            "firm": ("firm support", "hard"),
        },
    ),
    _enum(
        "Heat level",
        {
            "mild": ("mild taste", "hardly hot"),
            "medium": ("medium hot", "some heat"),
            "hot": ("spicy", "very hot", "fiery"),
        },
    ),
    _enum("Energy class", {letter: (f"class {letter}", f"rated {letter}") for letter in "ABCDE"}),
    _enum(
        "Room",
        {
            "kitchen": ("for your kitchen", "at home in the kitchen"),
            "bathroom": ("for the bath", "bathroom use"),
            "bedroom": ("for the bedroom", "next to your bed"),
            "office": ("for the office", "office use"),
            "garden": ("for the garden", "for your backyard"),
        },
    ),
    _enum(
        "Sleeve length",
        {
            "sleeveless": ("no sleeves", "tank style"),
            "short": ("short sleeves", "short-sleeved"),
            "long": ("long sleeves", "long-sleeved"),
        },
    ),
    _enum(
        "Display type",
        {"LCD": ("LCD panel",), "LED": ("LED display",), "OLED": ("OLED panel",), "e-ink": ("paper-like e-ink",)},
    ),
    _enum(
        "Connection",
        {
            "USB": ("plugs into USB", "USB-C cable"),
            "Wi-Fi": ("over Wi-Fi", "wireless LAN"),
            "radio": ("2.4 GHz dongle", "by radio"),
            "wired": ("with a cord", "corded"),
        },
    ),
    _enum(
        "Storage conditions",
        {
            "room temperature": ("store at room temperature", "keep in the cupboard"),
            "refrigerated": ("keep in the fridge", "keep cool"),
            "frozen": ("keep in the freezer", "keep frozen"),
        },
    ),
    _enum(
        "Installation",
        {
            "built-in": ("built into the wall", "for building in"),
            "tabletop": ("stands on a table", "countertop model"),
            "portable": ("take it anywhere", "carry it with you"),
        },
    ),
    _enum(
        "Target user",
        {
            "kids": ("for children", "made for kids"),
            "teens": ("for teenagers",),
            "adults": ("for grown-ups", "adults only"),
            "seniors": ("for older people", "for the elderly"),
        },
    ),
    _enum(
        "Condition",
        {
            "new": ("brand new", "unopened"),
            "refurbished": ("factory refurbished", "renewed"),
            "used": ("second hand", "pre-owned", "shows signs of wear"),
        },
    ),
    _enum(
        "Fabric weight",
        {"light": ("lightweight cloth", "airy"), "medium": ("mid-weight",), "heavy": ("heavyweight", "thick cloth")},
    ),
    _enum("Side", {"left": ("for the left side", "left-hand"), "right": ("for the right side", "right-hand")}),
    _enum(
        "Use",
        {
            "indoor": ("for indoor use", "use inside"),
            "outdoor": ("for outdoors", "for use outside"),
            "both": ("inside and outside", "indoor and outdoor"),
        },
    ),
    _list("Certifications", "CE, RoHS, UL, FSC, GOTS, ISO 9001, Energy Star, Oeko-Tex", "certified by {}", "{} mark"),
    _list("Ports", "HDMI, USB-A, USB-C, Ethernet, VGA, headphone jack, SD slot, DisplayPort", "ports: {}", "has {}"),
    _list("Allergens", "milk, soy, wheat, eggs, peanuts, sesame, almonds, fish", "contains {}", "may contain {}"),
    _list(
        "Sensors",
        "gyroscope, thermometer, barometer, light sensor, GPS, pulse sensor",
        "measures with {}",
        "{} on board",
    ),
    _list("File formats", "MP3, WAV, FLAC, JPEG, PNG, PDF, EPUB, MP4, AVI", "plays {}", "reads {}", "supports {}"),
    _list(
        "Occasions",
        "birthdays, weddings, Christmas, graduation, Halloween, anniversaries",
        "perfect for {}",
        "great for {}",
    ),
    _list("Available sizes", "XS, S, M, L, XL, XXL, 3XL", "comes in {}", "sizes {}", "in {}"),
    _list("Programs", "cotton, wool, eco, quick, silk, jeans, spin, rinse", "programs for {}", "with {} program"),
    _list("Activities", "hiking, yoga, swimming, fishing, running, cycling, camping, golf", "for {}", "ideal for {}"),
    _list("Suitable hobs", "gas, induction, ceramic, electric, halogen", "works on {}", "for {} hobs"),
    _list(
        "Scents", "rose, lemon, sandalwood, jasmine, mint, amber, lilac", "smells of {}", "scented with {}", "{} scent"
    ),
    _string("Part number", _code, "part no. {}", "P/N {}", "ref. {}"),
    _string("Article code", _code, "article {}", "item code {}", "art.-no. {}"),
    _string("Series", _name, "from the {} series", "{} line", "part of our {} collection"),
    _string("Designer", _name, "designed by {}", "a design by {}"),
    _string("Sold by", _name, "sold by {}", "seller {}", "shipped and sold by {}"),
    _string("Importer", _name, "imported by {}", "importer {}"),
    _string("Made in", _one_of("Portugal, Vietnam, Canada, Turkey, Poland, India, Mexico, Taiwan"), "made in {}"),
    _string("Plug", _one_of("EU plug, UK plug, US plug, Schuko, type G, barrel jack"), "with {}", "{} included"),
    _string("Theme", _one_of("dinosaurs, space, ocean, jungle, pirates, princess, robots"), "{} theme", "theme of {}"),
)

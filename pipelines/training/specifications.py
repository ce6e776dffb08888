"""What a product may be said to be besides what it is labelled with: 120 invented specifications (see inventing.py)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpd_core import Attribute
from pipelines.scoring import fold
from pipelines.training.data import Items, words_pattern

_TRUE = 0.6  # share of the booleans that are true
_NAMED = 0.35  # share of the statements that name the attribute ("Guarantee: 24 months")
_NAMED_LINES = ("{name}: {text}", "{name}: {text}", "{name} - {text}", "{name} {text}", "{name}={text}")
# Words of an attribute's name that do not say what it is about.
_VAGUE = frozenset(
    ("of", "the", "in", "by", "up", "number", "level", "type", "class", "time", "range", "item", "required", "included")
)
_MIN_CUE = 5  # letters of a phrase's fixed part, so that it is found on purpose

Statement = tuple[Items, str]
"""An answer, and a text from which it follows."""


@dataclass(frozen=True, slots=True)
class Specification:
    """Something that a product may state.

    Attributes:
        draw: an answer and its statement.
        topics: words; a catalog with an attribute of such a name may mean the same by it.
        cues: finds in folded text what may state or deny it.
        units: finds amounts in its unit, with which a listing may state it in words of its own.
    """

    attribute: Attribute
    draw: Callable[[random.Random], Statement]
    topics: frozenset[str]
    cues: re.Pattern[str]
    units: re.Pattern[str]


def topic_words(text: str) -> frozenset[str]:
    """What a name is about: its words, without endings and spellings."""
    words = re.findall(r"[^\W\d_]+", fold(text).replace("colour", "color"))
    return frozenset(re.sub(r"(?<=\w\w[^\Ws])s$", "", word) for word in words if word not in _VAGUE)


def _specification(
    attribute: Attribute,
    draw: Callable[[random.Random], Statement],
    topics: str,
    cues: Iterable[str],
    units: Sequence[str] = (),
) -> Specification:
    found = {fold(cue) for cue in (attribute.name, *cues) if cue}
    amounts = re.compile(
        r"\d\s*(?:" + "|".join(re.escape(fold(unit)) for unit in units) + r")(?!\w)" if units else "(?!)"
    )
    return Specification(attribute, draw, topic_words(f"{attribute.name} {topics}"), words_pattern(found), amounts)


def _fixed_parts(phrases: Iterable[str]) -> list[str]:
    parts = [phrase.replace("{}", "").strip() for phrase in phrases]
    return [part for part in parts if len(part) >= _MIN_CUE]


def _state(name: str, text: str, phrases: Sequence[str], generator: random.Random) -> str:
    """`text` in one of the phrases, or behind the attribute's name."""
    if not phrases or generator.random() < _NAMED:
        return generator.choice(_NAMED_LINES).format(name=name, text=text)
    return generator.choice(phrases).format(text)


def _number(
    name: str, unit: str, low: float, high: float, *phrases: str, topics: str = "", also: str = ""
) -> Specification:
    """`unit`: the one asked for, and after slashes other ways to write it. Decimals are those of `low`."""
    asked, *others = unit.split("/")
    decimals = len(str(low).partition(".")[2])

    def draw(generator: random.Random) -> Statement:
        number = f"{generator.uniform(low, high):.{decimals}f}"
        written = generator.choice([asked, asked, *others])
        joint = generator.choice(["", " "]) if len(written) <= 3 else " "
        return [number], _state(name, f"{number}{joint}{written}".strip(), phrases, generator)

    attribute = Attribute(name=name, type="number", unit=asked or None)
    units = [item for item in (asked, *others) if item]
    return _specification(attribute, draw, topics, [*_fixed_parts(phrases), *also.split()], units)


def _boolean(name: str, yes: Sequence[str], no: Sequence[str], *, topics: str = "", also: str = "") -> Specification:
    def draw(generator: random.Random) -> Statement:
        is_true = generator.random() < _TRUE
        word = generator.choice(("yes", "Yes", "true", "✓") if is_true else ("no", "No", "false", "✗"))
        return ["true" if is_true else "false"], _state(name, word, yes if is_true else no, generator)

    return _specification(Attribute(name=name, type="boolean"), draw, topics, [*yes, *no, *also.split()])


def _enum(name: str, phrases: Mapping[str, Sequence[str]], *, topics: str = "", also: str = "") -> Specification:
    """Per member the ways to say it; the member itself may stand alone."""

    def draw(generator: random.Random) -> Statement:
        member = generator.choice(list(phrases))
        return [member], _state(name, member, phrases[member], generator)

    attribute = Attribute(name=name, type="enum", values=tuple(phrases))
    said = [text for member, texts in phrases.items() for text in (member, *texts)]
    return _specification(attribute, draw, topics, [*said, *also.split()])


def _list(name: str, members: str, *phrases: str, topics: str = "", also: str = "") -> Specification:
    """`members` separated by commas."""
    pool = members.split(", ")

    def draw(generator: random.Random) -> Statement:
        chosen = generator.sample(pool, generator.randint(1, 4))
        *most, last = chosen
        text = generator.choice((f"{', '.join(most)} and {last}" if most else last, ", ".join(chosen)))
        return chosen, _state(name, text, phrases, generator)

    cues = [*pool, *_fixed_parts(phrases), *also.split()]
    return _specification(Attribute(name=name, multiple=True), draw, topics, cues)


def _string(
    name: str, draw_text: Callable[[random.Random], str], *phrases: str, topics: str = "", also: str = ""
) -> Specification:
    def draw(generator: random.Random) -> Statement:
        text = draw_text(generator)
        return [text], _state(name, text, phrases, generator)

    return _specification(Attribute(name=name), draw, topics, [*_fixed_parts(phrases), *also.split()])


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
        about = f"{part} material fabric cloth made wood metal"
        made.append(_string(f"{part.capitalize()} material", _one_of(_MATERIALS), *phrases, topics=about, also=part))
        coloured = (f"{{}} {part}", f"{part} in {{}}", f"the {part} is {{}}")
        about = f"{part} color shade hue"
        made.append(_string(f"Colour of the {part}", _one_of(_SHADES), *coloured, topics=about, also=part))
    return made


SPECIFICATIONS: Sequence[Specification] = (
    *_parts(),
    _number(
        "Guarantee",
        "months/month",
        6,
        60,
        "covered for {}",
        "{} guarantee",
        "guaranteed for {}",
        topics="warranty",
        also="warranty guaranteed guarantee",
    ),
    _number(
        "Cable length",
        "m/metres/meters",
        0.5,
        9.9,
        "{} cable",
        "with a {} long cable",
        "cable of {}",
        topics="cord size dimension",
    ),
    _number("Item width", "cm/centimetres", 5, 240, "{} wide", "{} in width", "W {}", topics="size dimension"),
    _number("Item depth", "cm/centimetres", 5, 120, "{} deep", "{} in depth", "D {}", topics="size dimension"),
    _number("Diameter", "mm/millimetres", 3, 400, "{} across", "{} in diameter", "ø {}", topics="size dimension width"),
    _number("Thickness", "mm/millimetres", 0.2, 40, "{} thick", "just {} thin", topics="size dimension"),
    _number("Shipping weight", "kg/kilograms", 0.1, 40, "ships at {}", "{} packed", "{} in its carton", topics="mass"),
    _number(
        "Maximum load", "kg/kilos", 2, 300, "carries up to {}", "holds {}", "safe up to {}", topics="capacity weight"
    ),
    _number(
        "Charging time",
        "minutes/min",
        15,
        600,
        "charges in {}",
        "full charge within {}",
        "{} to charge",
        topics="battery",
        also="charge charges charging",
    ),
    _number(
        "Noise level", "dB/decibels", 18, 95, "only {} loud", "quiet at {}", "{} in operation", topics="sound volume"
    ),
    _number(
        "Operating range",
        "m/metres",
        2,
        300,
        "works from {} away",
        "reaches {}",
        "signal up to {}",
        topics="distance reach",
    ),
    _number(
        "Screen size",
        "inch/inches/in",
        1.5,
        85,
        "{} screen",
        "{} display",
        "a display of {}",
        topics="display dimension",
        also="screen display",
    ),
    _number("Storage", "GB/gigabytes", 4, 2048, "{} of storage", "stores {}", "{} built in", topics="memory capacity"),
    _number(
        "Number of pieces",
        "",
        2,
        500,
        "{} pieces",
        "{}-piece set",
        "set of {}",
        "{} parts",
        topics="pack piece quantity count content",
    ),
    _number("Number of drawers", "", 1, 12, "{} drawers", "with {} drawers"),
    _number("Number of pockets", "", 1, 14, "{} pockets", "with {} pockets inside"),
    _number("Speed levels", "", 2, 12, "{} speeds", "runs at {} speeds", "{} speed settings", topics="gear"),
    _number("Thread count", "", 120, 1200, "{} thread count", "woven with {} threads"),
    _number(
        "Serving size", "g/grams", 5, 250, "{} per serving", "one serving is {}", "serve {}", topics="portion dosage"
    ),
    _number(
        "Energy",
        "kcal/calories",
        20,
        600,
        "{} a portion",
        "{} per 100 g",
        "provides {}",
        topics="calorie nutrition power",
    ),
    _number("Shelf life", "days/day", 5, 730, "keeps for {}", "best within {}", "lasts {} unopened", topics="expiry"),
    _number("Blade length", "cm", 4, 45, "{} blade", "blade of {}", "a {} long blade", topics="size dimension"),
    _number("Tank size", "litres/l/L", 0.2, 12, "{} tank", "tank holds {}", "tank of {}", topics="capacity volume"),
    _number("Hose length", "m/metres", 1.2, 50, "{} hose", "hose of {}", topics="size dimension"),
    _number("Coverage", "m²/square metres", 2, 200, "enough for {}", "covers {}", "for rooms up to {}", topics="area"),
    _number("Pressure", "bar", 1, 200, "{} of pressure", "works at {}", "up to {}"),
    _number("Magnification", "x", 2, 60, "{} zoom", "magnifies {}", "{} magnification", topics="zoom"),
    _number("Frequency", "Hz/hertz", 20, 240, "{} refresh", "runs at {}", topics="refresh rate"),
    _number("Wheel size", "inch/inches", 8, 29, "{} wheels", "rolls on {} wheels", topics="dimension"),
    _number("Seats", "", 1, 8, "seats {}", "room for {} people", "{} seats", topics="capacity people"),
    _number("Oldest age", "years", 3, 99, "up to {} old", "until {}", topics="people child", also="age ages old"),
    _number("Warm-up time", "seconds/sec/s", 5, 180, "ready in {}", "hot after {}", "{} to warm up"),
    _number(
        "Year",
        "",
        1950,
        2026,
        "from {}",
        "introduced in {}",
        "model year {}",
        "{} edition",
        topics="model release edition",
        also="edition since",
    ),
    _boolean(
        "Foldable",
        ("folds flat", "folds away easily", "foldable"),
        ("does not fold", "not foldable"),
        topics="folding",
        also="folds folding fold",
    ),
    _boolean(
        "Rechargeable",
        ("rechargeable", "recharge it by USB", "built-in rechargeable battery"),
        ("runs on disposable batteries", "cannot be recharged", "not rechargeable"),
        topics="battery power",
        also="charge charges charging battery batteries charger",
    ),
    _boolean(
        "Machine washable",
        ("machine washable", "machine wash cold", "wash at 30"),
        ("hand wash only", "dry clean only"),
        topics="washing care",
        also="wash washing",
    ),
    _boolean(
        "Microwave safe",
        ("microwave safe", "fit for the microwave"),
        ("do not microwave", "not for microwaves"),
        also="microwave",
    ),
    _boolean(
        "Handmade",
        ("made by hand", "handmade", "handcrafted"),
        ("factory made", "machine made"),
        topics="made craft",
        also="hand",
    ),
    _boolean("Stackable", ("stacks neatly", "stackable"), ("cannot be stacked", "not stackable")),
    _boolean(
        "Remote control",
        ("remote control in the box", "works by remote", "comes with a remote"),
        ("without remote control", "no remote", "remote sold separately"),
        also="remote",
    ),
    _boolean(
        "Bluetooth",
        ("Bluetooth 5.0", "pairs over Bluetooth"),
        ("no Bluetooth", "without Bluetooth"),
        topics="connectivity wireless connection",
        also="wireless",
    ),
    _boolean(
        "Assembly required",
        ("some assembly required", "needs to be put together", "self-assembly"),
        ("no assembly needed", "comes fully assembled", "ready to use"),
        also="assembly assembled",
    ),
    _boolean(
        "Lockable",
        ("with a lock and two keys", "lockable"),
        ("does not lock", "no lock"),
        topics="lock",
        also="lock locks keys",
    ),
    _boolean("Reversible", ("reversible", "use it on both sides"), ("one-sided", "not reversible"), also="sided"),
    _boolean(
        "Hypoallergenic",
        ("hypoallergenic", "kind to allergies"),
        ("not hypoallergenic", "may cause allergies"),
        topics="allergy allergen",
        also="allergies allergenic",
    ),
    _boolean(
        "Gluten free",
        ("gluten free", "no gluten", "without gluten"),
        ("contains gluten", "contains wheat"),
        topics="diet allergen ingredient",
        also="wheat gluten",
    ),
    _boolean(
        "Sugar free",
        ("sugar free", "no sugar", "zero sugar"),
        ("contains sugar", "with cane sugar"),
        topics="diet sweetener ingredient",
        also="sugar",
    ),
    _boolean(
        "Recyclable",
        ("100% recyclable", "can be recycled"),
        ("not recyclable", "cannot be recycled"),
        topics="recycling",
        also="recycled recycling",
    ),
    _boolean("Oven safe", ("oven safe", "goes into the oven"), ("not for the oven", "keep out of ovens"), also="oven"),
    _boolean(
        "Child lock", ("child lock", "locked against children"), ("no child lock", "without child lock"), also="lock"
    ),
    _boolean("Backlit", ("backlit", "backlit keys"), ("no backlight", "not backlit"), topics="light", also="light"),
    _boolean(
        "Batteries included",
        ("batteries included", "with 2 AA batteries", "battery in the box"),
        ("batteries not included", "batteries sold separately", "without batteries"),
        topics="battery power",
        also="battery batteries rechargeable",
    ),
    _boolean(
        "Non-slip", ("non-slip", "anti-slip base", "does not slip"), ("slippery when wet", "no grip"), also="grip slip"
    ),
    _boolean(
        "Quick drying",
        ("dries quickly", "quick-dry"),
        ("slow to dry", "dries slowly"),
        topics="fabric",
        also="dry dries drying",
    ),
    _boolean("Breathable", ("breathable", "lets the skin breathe"), ("not breathable", "airtight"), topics="fabric"),
    _boolean(
        "Removable cover", ("cover comes off", "removable cover"), ("fixed cover", "cover is sewn on"), also="cover"
    ),
    _boolean(
        "Wall mountable",
        ("can be hung on a wall", "wall mountable"),
        ("not for walls", "no wall mount"),
        topics="mounting installation",
        also="wall",
    ),
    _boolean("Auto shut-off", ("switches itself off", "auto shut-off"), ("stays on until switched off",)),
    _boolean(
        "Solar powered",
        ("powered by the sun", "solar powered"),
        ("no solar panel", "not solar powered"),
        topics="power",
        also="solar",
    ),
    _boolean(
        "Limited edition", ("limited edition", "a limited run"), ("regular edition", "not limited"), also="edition"
    ),
    _boolean(
        "Subscription required",
        ("needs a subscription", "subscription required"),
        ("no subscription", "no fees"),
        also="subscription fees",
    ),
    _boolean("Safe for septic tanks", ("septic safe",), ("not septic safe", "do not flush")),
    _enum(
        "Skill level",
        {
            "beginner": ("for beginners", "easy to start with", "your first one"),
            "intermediate": ("for intermediate users", "for the advanced beginner"),
            "expert": ("for experts", "for professionals", "expert level"),
        },
        topics="difficulty user people",
        also="beginners experts professionals",
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
        also="fall",
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
        topics="form",
        also="shaped",
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
        topics="print design style",
        also="stripes dots floral print solid",
    ),
    _enum(
        "Firmness",
        {
            "soft": ("soft to lie on", "softer feel"),
            "medium": ("medium firm", "neither hard nor soft"),
            "firm": ("firm support", "hard"),
        },
        topics="hardness softness",
        also="hard",
    ),
    _enum(
        "Heat level",
        {
            "mild": ("mild taste", "hardly hot"),
            "medium": ("medium hot", "some heat"),
            "hot": ("spicy", "very hot", "fiery"),
        },
        topics="spiciness flavor taste",
        also="spicy",
    ),
    _enum(
        "Energy class",
        {letter: (f"class {letter}", f"rated {letter}") for letter in "ABCDE"},
        topics="efficiency power",
    ),
    _enum(
        "Room",
        {
            "kitchen": ("for your kitchen", "at home in the kitchen"),
            "bathroom": ("for the bath", "bathroom use"),
            "bedroom": ("for the bedroom", "next to your bed"),
            "office": ("for the office", "office use"),
            "garden": ("for the garden", "for your backyard"),
        },
        topics="use place",
        also="room home",
    ),
    _enum(
        "Sleeve length",
        {
            "sleeveless": ("no sleeves", "tank style"),
            "short": ("short sleeves", "short-sleeved"),
            "long": ("long sleeves", "long-sleeved"),
        },
        also="sleeve sleeves",
    ),
    _enum(
        "Display type",
        {"LCD": ("LCD panel",), "LED": ("LED display",), "OLED": ("OLED panel",), "e-ink": ("paper-like e-ink",)},
        topics="screen",
        also="display screen",
    ),
    _enum(
        "Connection",
        {
            "USB": ("plugs into USB", "USB-C cable"),
            "Wi-Fi": ("over Wi-Fi", "wireless LAN"),
            "radio": ("2.4 GHz dongle", "by radio"),
            "wired": ("with a cord", "corded"),
        },
        topics="connectivity interface",
        also="cord usb cable corded",
    ),
    _enum(
        "Storage conditions",
        {
            "room temperature": ("store at room temperature", "keep in the cupboard"),
            "refrigerated": ("keep in the fridge", "keep cool"),
            "frozen": ("keep in the freezer", "keep frozen"),
        },
        topics="storing",
        also="store keep",
    ),
    _enum(
        "Installation",
        {
            "built-in": ("built into the wall", "for building in"),
            "tabletop": ("stands on a table", "countertop model"),
            "portable": ("take it anywhere", "carry it with you"),
        },
        topics="mounting",
    ),
    _enum(
        "Target user",
        {
            "kids": ("for children", "made for kids"),
            "teens": ("for teenagers",),
            "adults": ("for grown-ups", "adults only"),
            "seniors": ("for older people", "for the elderly"),
        },
        topics="age gender people sex department",
        also="adult kid children child men women senior boys girls",
    ),
    _enum(
        "Condition",
        {
            "new": ("brand new", "unopened"),
            "refurbished": ("factory refurbished", "renewed"),
            "used": ("second hand", "pre-owned", "shows signs of wear"),
        },
        also="renewed wear unopened",
    ),
    _enum(
        "Fabric weight",
        {"light": ("lightweight cloth", "airy"), "medium": ("mid-weight",), "heavy": ("heavyweight", "thick cloth")},
        topics="material",
        also="heavy light",
    ),
    _enum(
        "Side",
        {"left": ("for the left side", "left-hand"), "right": ("for the right side", "right-hand")},
        topics="position orientation",
    ),
    _enum(
        "Use",
        {
            "indoor": ("for indoor use", "use inside"),
            "outdoor": ("for outdoors", "for use outside"),
            "both": ("inside and outside", "indoor and outdoor"),
        },
        topics="place purpose",
        also="indoors outdoors inside outside",
    ),
    _list(
        "Certifications",
        "CE, RoHS, UL, FSC, GOTS, ISO 9001, Energy Star, Oeko-Tex",
        "certified by {}",
        "{} mark",
        topics="certified grade standard",
        also="certified",
    ),
    _list(
        "Ports",
        "HDMI, USB-A, USB-C, Ethernet, VGA, headphone jack, SD slot, DisplayPort",
        "ports: {}",
        "has {}",
        topics="interface connection",
        also="usb port",
    ),
    _list(
        "Allergens",
        "milk, soy, wheat, eggs, peanuts, sesame, almonds, fish",
        "contains {}",
        "may contain {}",
        topics="ingredient diet",
        also="gluten nut nuts allergen",
    ),
    _list(
        "Sensors",
        "gyroscope, thermometer, barometer, light sensor, GPS, pulse sensor",
        "measures with {}",
        "{} on board",
    ),
    _list(
        "File formats",
        "MP3, WAV, FLAC, JPEG, PNG, PDF, EPUB, MP4, AVI",
        "plays {}",
        "reads {}",
        "supports {}",
        also="format formats",
    ),
    _list(
        "Occasions",
        "birthdays, weddings, Christmas, graduation, Halloween, anniversaries",
        "perfect for {}",
        "great for {}",
        topics="event",
        also="gift party wedding birthday",
    ),
    _list(
        "Available sizes",
        "XS, S, M, L, XL, XXL, 3XL",
        "comes in {}",
        "sizes {}",
        "in {}",
        topics="size dimension",
        also="size sizes",
    ),
    _list(
        "Programs",
        "cotton, wool, eco, quick, silk, jeans, spin, rinse",
        "programs for {}",
        "with {} program",
        topics="mode cycle",
        also="program",
    ),
    _list(
        "Activities",
        "hiking, yoga, swimming, fishing, running, cycling, camping, golf",
        "for {}",
        "ideal for {}",
        topics="sport use discipline",
        also="sport sports",
    ),
    _list(
        "Suitable hobs", "gas, induction, ceramic, electric, halogen", "works on {}", "for {} hobs", topics="stove fuel"
    ),
    _list(
        "Scents",
        "rose, lemon, sandalwood, jasmine, mint, amber, lilac",
        "smells of {}",
        "scented with {}",
        "{} scent",
        topics="fragrance aroma smell flavor",
        also="scent scented fragrance unscented",
    ),
    _string("Part number", _code, "part no. {}", "P/N {}", "ref. {}", topics="model reference sku mpn code"),
    _string(
        "Article code", _code, "article {}", "item code {}", "art.-no. {}", topics="model reference sku mpn number item"
    ),
    _string(
        "Series",
        _name,
        "from the {} series",
        "{} line",
        "part of our {} collection",
        topics="model line collection sub",
        also="collection line",
    ),
    _string("Designer", _name, "designed by {}", "a design by {}", topics="maker manufacturer"),
    _string("Sold by", _name, "sold by {}", "seller {}", "shipped and sold by {}", topics="seller shop"),
    _string("Importer", _name, "imported by {}", "importer {}", topics="manufacturer"),
    _string(
        "Made in",
        _one_of("Portugal, Vietnam, Canada, Turkey, Poland, India, Mexico, Taiwan"),
        "made in {}",
        topics="country origin",
        also="made",
    ),
    _string(
        "Plug",
        _one_of("EU plug, UK plug, US plug, Schuko, type G, barrel jack"),
        "with {}",
        "{} included",
        topics="power connector",
        also="plug",
    ),
    _string(
        "Theme",
        _one_of("dinosaurs, space, ocean, jungle, pirates, princess, robots"),
        "{} theme",
        "theme of {}",
        topics="pattern style design character print",
        also="theme",
    ),
)

"""Made-up documents for five schemas, with the JSON that stands in them: nested objects, lists of 0 to 20 objects.

invoice    buyer and seller, 1 to 20 lines          visit      a doctor's note: findings, 0 to 6 drugs
ticket     who, what, how urgent, 0 to 3 devices    résumé     0 to 8 jobs, languages
event      when, where, 0 to 12 speakers
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_FIRST = ("Ada", "Bo", "Chidi", "Dora", "Emil", "Fatou", "Gita", "Hugo", "Ines", "Jun", "Kofi", "Lena")
_LAST = ("Okafor", "Lind", "Moreau", "Tanaka", "Silva", "Novak", "Haddad", "Berg", "Costa", "Ito")
_TOWNS = ("Lyon", "Graz", "Porto", "Bergen", "Ghent", "Tartu", "Krakow", "Cork")
_THINGS = ("desk lamp", "oak shelf", "steel kettle", "wool rug", "floor fan", "wall clock", "tea tray", "coat rack")
_DEVICES = ("laptop", "printer", "phone", "router", "monitor")
_DRUGS = ("Cardolin", "Veramex", "Nosalid", "Trivan", "Pelorin", "Asmovent", "Gastrex", "Ultima")
_ROLES = ("baker", "welder", "nurse", "editor", "driver", "analyst", "cook", "teacher")
_TOPICS = ("tides", "bridges", "soil", "glass", "maps", "yeast", "lichen", "gears")

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
DATE: Schema = {"type": "string", "format": "date"}


@dataclass(frozen=True, slots=True)
class Form:
    """A document, its schema and what it says."""

    name: str
    schema: Schema
    document: str
    answer: Mapping[str, Any]


def make_forms(count: int, seed: int = 0) -> list[Form]:
    """So many documents, of the schemas in turn."""
    rng = random.Random(seed)
    names = list(_MAKERS)
    return [_form(names[number % len(names)], rng) for number in range(count)]


def _form(name: str, rng: random.Random) -> Form:
    document, answer = _MAKERS[name](rng)
    return Form(name, SCHEMAS[name], document, answer)


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(most: int, **properties: Schema) -> Schema:
    return {"type": "array", "maxItems": most, "items": _object(**properties)}


_PERSON = _object(name=TEXT, town=TEXT)
SCHEMAS: Mapping[str, Schema] = {
    "invoice": _object(
        number=TEXT,
        date=DATE,
        seller=_PERSON,
        buyer=_PERSON,
        currency={"enum": ["EUR", "USD", "GBP"]},
        paid={"type": "boolean"},
        lines=_list(20, item=TEXT, quantity=COUNT, price={"type": "number", "minimum": 0}),
    ),
    "ticket": _object(
        reporter=_PERSON,
        urgency={"enum": ["low", "normal", "high"]},
        opened=DATE,
        devices=_list(3, device=TEXT, is_broken={"type": "boolean"}),
    ),
    "event": _object(
        title=TEXT,
        place=_object(hall=TEXT, town=TEXT),
        date=DATE,
        seats=COUNT,
        speakers=_list(12, name=TEXT, topic=TEXT),
    ),
    "visit": _object(
        patient=_object(name=TEXT, age=COUNT),
        date=DATE,
        pulse=COUNT,
        drugs=_list(6, drug=TEXT, dose_mg=COUNT, per_day=COUNT),
    ),
    "résumé": _object(
        person=_PERSON,
        languages={"type": "array", "items": TEXT},
        jobs=_list(8, employer=TEXT, role=TEXT, since={"type": "integer"}),
    ),
}


def _someone(rng: random.Random) -> dict[str, Any]:
    return {"name": f"{rng.choice(_FIRST)} {rng.choice(_LAST)}", "town": rng.choice(_TOWNS)}


def _day(rng: random.Random) -> str:
    return f"20{rng.randint(18, 26)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def _some(names: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """Different names, numbered where there are not enough."""
    shuffled = rng.sample(names, len(names))
    return [shuffled[n % len(names)] + (f" {n // len(names) + 1}" if n >= len(names) else "") for n in range(count)]


def _invoice(rng: random.Random) -> tuple[str, dict[str, Any]]:
    lines = [
        {"item": item, "quantity": rng.randint(1, 9), "price": rng.randint(100, 9900) / 100}
        for item in _some(_THINGS, rng.randint(1, 20), rng)
    ]
    answer: dict[str, Any] = {
        "number": f"R-{rng.randint(1000, 9999)}",
        "date": _day(rng),
        "seller": _someone(rng),
        "buyer": _someone(rng),
        "currency": rng.choice(["EUR", "USD", "GBP"]),
        "paid": rng.random() < 0.5,
        "lines": lines,
    }
    rows = "\n".join(f"{line['quantity']} x {line['item']} at {line['price']}" for line in lines)
    seller, buyer = answer["seller"], answer["buyer"]
    document = (
        f"INVOICE {answer['number']}, {answer['date']}\nFrom: {seller['name']}, {seller['town']}\n"
        f"To: {buyer['name']}, {buyer['town']}\n{rows}\nAll prices in {answer['currency']}. "
        + ("Paid in full." if answer["paid"] else "Payment is due.")
    )
    return document, answer


def _ticket(rng: random.Random) -> tuple[str, dict[str, Any]]:
    devices = [
        {"device": device, "is_broken": rng.random() < 0.5} for device in _some(_DEVICES, rng.randint(0, 3), rng)
    ]
    answer: dict[str, Any] = {
        "reporter": _someone(rng),
        "urgency": rng.choice(["low", "normal", "high"]),
        "opened": _day(rng),
        "devices": devices,
    }
    about = " ".join(f"The {each['device']} {'is broken' if each['is_broken'] else 'works'}." for each in devices)
    who = answer["reporter"]
    return f"{answer['opened']}: {who['name']} of {who['town']} writes. Urgency: {answer['urgency']}. {about}", answer


def _event(rng: random.Random) -> tuple[str, dict[str, Any]]:
    speakers = [
        {"name": f"{first} {rng.choice(_LAST)}", "topic": rng.choice(_TOPICS)}
        for first in _some(_FIRST, rng.randint(0, 12), rng)
    ]
    answer: dict[str, Any] = {
        "title": f"Day of {rng.choice(_TOPICS)}",
        "place": {"hall": f"Hall {rng.randint(1, 9)}", "town": rng.choice(_TOWNS)},
        "date": _day(rng),
        "seats": rng.randint(20, 400),
        "speakers": speakers,
    }
    talks = "; ".join(f"{each['name']} on {each['topic']}" for each in speakers)
    place = answer["place"]
    where = f"{place['hall']}, {place['town']}"
    return f"{answer['title']}. {answer['date']}, {where}. {answer['seats']} seats. Talks: {talks or 'none'}.", answer


def _visit(rng: random.Random) -> tuple[str, dict[str, Any]]:
    drugs = [
        {"drug": drug, "dose_mg": rng.choice([5, 10, 50, 200]), "per_day": rng.randint(1, 4)}
        for drug in _some(_DRUGS, rng.randint(0, 6), rng)
    ]
    answer: dict[str, Any] = {
        "patient": {"name": _someone(rng)["name"], "age": rng.randint(1, 99)},
        "date": _day(rng),
        "pulse": rng.randint(50, 120),
        "drugs": drugs,
    }
    taken = "; ".join(f"{each['drug']} {each['dose_mg']} mg, {each['per_day']} times a day" for each in drugs)
    who = answer["patient"]
    seen = f"{who['name']}, {who['age']} years, seen on {answer['date']}. Pulse {answer['pulse']}."
    return f"{seen} Takes: {taken or 'nothing'}.", answer


def _resume(rng: random.Random) -> tuple[str, dict[str, Any]]:
    jobs = [
        {"employer": f"{name} Ltd", "role": rng.choice(_ROLES), "since": rng.randint(1990, 2025)}
        for name in _some(_LAST, rng.randint(0, 8), rng)
    ]
    languages = rng.sample(["French", "Polish", "Swahili", "Thai"], rng.randint(0, 3))
    answer: dict[str, Any] = {"person": _someone(rng), "languages": languages, "jobs": jobs}
    worked = "\n".join(f"- {each['role']} at {each['employer']} since {each['since']}" for each in jobs)
    who = answer["person"]
    return f"{who['name']}, {who['town']}\nSpeaks: {', '.join(languages) or 'English only'}\n{worked}", answer


_MAKERS: Mapping[str, Callable[[random.Random], tuple[str, dict[str, Any]]]] = {
    "invoice": _invoice,
    "ticket": _ticket,
    "event": _event,
    "visit": _visit,
    "résumé": _resume,
}

"""Order of training: which examples are packed together, and which packs make an optimizer step.

All random draws are seeded by (seed, epoch). So a run resumed in the middle of an epoch takes the same steps as an
uninterrupted one.

    products -> swapped    optionally: with other products' values in their texts
    products -> variants   optionally: a few products of a category are asked in another way (schema_variants.py), and
                           their texts told in another way (retold_texts.py) and continued (invented_texts.py)
    products -> examples   one each; `stacked`: groups of J of one category, J drawn from 1..stack_size
    examples -> packs      of one category (they share its prefix) and of similar length, up to a token budget
    packs    -> steps      shuffled, then cut after `documents_per_step` documents

Products with swapped values, so that a model learns where a value stands instead of memorizing values.

    "Ellie Shoes Women's 8400, Red Patent"    Brand "Ellie Shoes", Model name "8400"
    "Crocs Women's Jayna, Red Patent"         Brand "Crocs", Model name "Jayna"

A value is replaced by one that another product of its category has for the same attribute ("mention replacement" of
Dai and Adel, 2020, arXiv 2010.11683). The labels stay true of the text. Everything is drawn from the given generator.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpd_core import CategorySchema, DocumentTokenizer, Record
from hpd_core.training.examples import Example, ExampleBuilder, LabelledDocument
from pipelines.config.finetuning import FinetuneConfig
from pipelines.quality.scoring import fold, words_pattern
from pipelines.training.invented_texts import continue_text, may_hold_anything
from pipelines.training.labelled_products import Items, LabelledProduct
from pipelines.training.retold_texts import items_of, places_of, retell, stands_alone
from pipelines.training.schema_variants import Variant, draw_variant

# Packs are cut from windows of so many packs, sorted by length: little padding, yet no fixed neighbours.
_PACKS_PER_WINDOW = 8
_PRODUCTS_PER_VARIANT = 24

Pack = Sequence[Example]


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """Optimizer step.

    Attributes:
        packs: packs of each worker; all workers have equally many, and some may be empty.
        num_targets: number of target tokens over all workers.
        num_documents: number of documents over all workers.
    """

    packs: Sequence[Sequence[Pack]]
    num_targets: int
    num_documents: int


class StepPlanner:
    """Planner of the steps of every epoch. All workers make the same plan."""

    def __init__(
        self,
        products: Sequence[LabelledProduct],
        documents: DocumentTokenizer,
        builder: ExampleBuilder,
        config: FinetuneConfig,
    ) -> None:
        self._products = products
        self._documents = documents
        self._builder = builder
        self._config = config
        # Two datasets may call two categories alike: a schema tells them apart.
        self._groups: dict[str, list[int]] = {}
        for number, product in enumerate(products):
            self._groups.setdefault(product.schema.hash, []).append(number)
        self._values = {
            key: _count_values([products[number] for number in group]) for key, group in self._groups.items()
        }
        self._known = {
            key: words_pattern({fold(value) for counts in values.values() for value in counts})
            for key, values in self._values.items()
            if config.labels.variants
        }
        self._swappable = {
            key: swappable_values(products[number] for number in group)
            for key, group in self._groups.items()
            if config.labels.swapped
        }
        self._ids = documents.encode([product.record for product in products])
        self.num_too_long = 0
        self.num_unfitting = 0

    def epoch(self, number: int) -> list[TrainingStep]:
        """Draw the steps of epoch `number` (from 0)."""
        generator = random.Random(f"{self._config.seed}/{number}")
        self.num_too_long = self.num_unfitting = 0
        packs = [pack for key in self._groups for pack in self._packs(key, generator)]
        generator.shuffle(packs)
        return list(self._steps(packs))

    def _packs(self, key: str, generator: random.Random) -> Iterator[Pack]:
        order = list(self._groups[key])
        generator.shuffle(order)
        if not self._config.labels.variants:
            yield from self._cut(list(self._examples(order, None, generator)))
            return
        for start in range(0, len(order), _PRODUCTS_PER_VARIANT):
            schema = self._products[order[0]].schema
            is_varied = generator.random() < self._config.labels.variants
            variant = draw_variant(schema, self._values[key], generator) if is_varied else None
            yield from self._cut(list(self._examples(order[start : start + _PRODUCTS_PER_VARIANT], variant, generator)))

    def _cut(self, examples: Sequence[Example]) -> Iterator[Pack]:
        """Cut examples into packs of similar length within the token budget."""
        budget = self._config.optimizer.max_tokens_per_pack
        # A step has a pack for every worker at least.
        most = math.ceil(self._config.optimizer.documents_per_step / self._config.scaling.num_workers)
        mean = sum(example.num_own_tokens for example in examples) / max(1, len(examples))
        window = max(1, _PACKS_PER_WINDOW * int(budget / max(1.0, mean)))
        for start in range(0, len(examples), window):
            pack: list[Example] = []
            for example in sorted(examples[start : start + window], key=lambda item: item.num_own_tokens):
                # Sorted, so that this example is the longest of its pack, and every row is padded to it.
                tokens = example.num_prefix_tokens + (len(pack) + 1) * example.num_own_tokens
                num_documents = sum(item.num_documents for item in pack) + example.num_documents
                if pack and (tokens > budget or num_documents > most):
                    yield pack
                    pack = []
                pack.append(example)
            if pack:
                yield pack

    def _examples(self, order: Sequence[int], variant: Variant | None, generator: random.Random) -> Iterator[Example]:
        rest = list(order)
        while rest:
            size = generator.randint(1, self._config.engine.stack_size) if self._config.layout == "stacked" else 1
            chosen, rest = rest[:size], rest[size:]
            schema = self._products[chosen[0]].schema if variant is None else variant.schema
            documents = [self._document(number, variant, generator) for number in chosen]
            while any(document.answers for document in documents):
                if (example := self._builder.build(schema, documents)) is not None:
                    yield example
                    break
                # As the engine does: fewer documents where the gaps do not fit. The rest comes next.
                documents.pop()
                if not documents:
                    self.num_too_long += 1
                else:
                    rest.insert(0, chosen.pop())

    def _document(self, number: int, variant: Variant | None, generator: random.Random) -> LabelledDocument:
        product = self._products[number]
        share = self._config.labels.absent_share
        drawn = {name: None for name in product.assumed_absent if generator.random() < share}
        record, labels = product.record, dict(product.answers)
        if self._config.labels.swapped and generator.random() < self._config.labels.swapped:
            values = self._swappable[product.schema.hash]
            record, labels = swap_values(record, product.schema, labels, values, generator)
            if record is not product.record and self._config.labels.unlabelled == "absent_unless_known":
                drawn = _without_stated(drawn, record, product.known)
        if variant is None:
            is_as_it_was = record is product.record
            ids = self._ids[number] if is_as_it_was else self._documents.encode([record])[0]
            return LabelledDocument(ids, {**drawn, **labels})
        record, labels = retell(record, product.schema, labels, generator)
        answers = variant.answers({**drawn, **labels})
        if variant.specifications:
            asked, known, retold = variant.specifications, self._known[product.schema.hash], record
            record, stated = continue_text(retold, asked, variant.unasked, known, generator, variant.language)
            if record is not retold:
                # Known values are found in English alone.
                is_foreign = variant.language is not None
                questions = [item for item in variant.questions if is_foreign or may_hold_anything(item.source)]
                open_names = {item.attribute.name for item in questions}
                answers = {name: items for name, items in answers.items() if items or name not in open_names}
            answers |= stated
        return LabelledDocument(self._documents.encode([record])[0], self._fitting(variant, answers))

    def _fitting(self, variant: Variant, answers: Mapping[str, Items]) -> dict[str, Items]:
        """Drop and count answers longer than K_max, since a variant writes some values longer than their labels."""
        attributes = {attribute.name: attribute for attribute in variant.schema.attributes}
        fitting = {
            name: items
            for name, items in answers.items()
            if len(self._builder.value_ids(attributes[name], items)) <= self._builder.max_value_tokens(attributes[name])
        }
        self.num_unfitting += len(answers) - len(fitting)
        return fitting

    def _steps(self, packs: Sequence[Pack]) -> Iterator[TrainingStep]:
        """Cut after `documents_per_step` documents, and distribute the packs of a step over the workers."""
        num_workers = self._config.scaling.num_workers
        taken: list[Pack] = []
        for index, pack in enumerate(packs):
            taken.append(pack)
            num_documents = sum(example.num_documents for item in taken for example in item)
            if num_documents < self._config.optimizer.documents_per_step and index < len(packs) - 1:
                continue
            rounds = math.ceil(len(taken) / num_workers)
            dealt = [
                [taken[i] if (i := r * num_workers + w) < len(taken) else () for r in range(rounds)]
                for w in range(num_workers)
            ]
            num_targets = sum(example.num_targets for item in taken for example in item)
            yield TrainingStep(dealt, num_targets, num_documents)
            taken = []


def _without_stated(
    absent: Mapping[str, None], record: Record, known: Mapping[str, re.Pattern[str]]
) -> dict[str, None]:
    """Return the attributes of `absent` without a known value in the record's text."""
    text = fold("\n".join(record.fields.values()))
    return {name: None for name in absent if name not in known or not known[name].search(text)}


def _count_values(products: Sequence[LabelledProduct]) -> dict[str, Counter[str]]:
    """Count the values of each attribute."""
    counts: dict[str, Counter[str]] = {}
    for product in products:
        for name, items in product.answers.items():
            counts.setdefault(name, Counter()).update(items or ())
    return counts


_SWAPPED = 0.5  # share of the values of a product that are swapped


def swappable_values(products: Iterable[LabelledProduct]) -> dict[str, list[str]]:
    """Return attribute -> values of a category's products that stand in their texts, one entry per product."""
    found: dict[str, list[str]] = {}
    for product in products:
        text = "\n".join(product.record.fields.values())
        for name in _single_strings(product.schema, product.answers):
            (value,) = product.answers[name] or ()
            if places_of(value, text):
                found.setdefault(name, []).append(value)
    return found


def swap_values(
    record: Record,
    schema: CategorySchema,
    labels: Mapping[str, Items],
    values: Mapping[str, Sequence[str]],
    generator: random.Random,
) -> tuple[Record, dict[str, Items]]:
    """Swap some of the record's values. Return it with its labels, both unchanged if the result would be ambiguous.

    Only a value that stands in one place of the record, without overlapping another value, is swapped.

    Args:
        values: `swappable_values` of its category.
    """
    told, fields = dict(labels), dict(record.fields)
    stated = _stated(labels, fields)
    swapped: list[str] = []
    for name in _single_strings(schema, labels):
        (value,) = labels[name] or ()
        if name not in values or generator.random() >= _SWAPPED:
            continue
        other = generator.choice(values[name])
        if other == value or not stands_alone(value, "\n".join(fields.values()), items_of(told, name)):
            continue
        places = [(key, span) for key, text in fields.items() for span in places_of(value, text)]
        if not places:
            continue  # it goes from one field into the next
        ((field, (first, last)),) = places
        fields[field] = fields[field][:first] + other + fields[field][last:]
        told[name] = [other]
        swapped.append(other)
    text = "\n".join(fields.values())
    is_clear = all(len(places_of(value, text)) == 1 for value in swapped)
    if not swapped or not is_clear or not stated <= _stated(told, fields):
        return record, dict(labels)
    return Record(record.id, record.category, fields), told


def _single_strings(schema: CategorySchema, labels: Mapping[str, Items]) -> list[str]:
    """Return the names of single-string attributes with one value, in the schema's order."""
    names = [each.name for each in schema.attributes if each.type == "string" and not each.multiple]
    return [name for name in names if len(labels.get(name) or ()) == 1]


def _stated(labels: Mapping[str, Items], fields: Mapping[str, str]) -> set[str]:
    """Return the attributes whose values all stand in the text."""
    text = "\n".join(fields.values())
    return {name for name, items in labels.items() if items and all(item in text for item in items)}

"""Order of training: which examples are too long and left out, packed together, and make an optimizer step.

All random draws are seeded by (seed, epoch). So a run resumed in the middle of an epoch takes the same steps as an
uninterrupted one.

    products -> swapped    optionally: with other products' values in their texts (swapped_values.py)
    products -> examples   one each; `stacked`: groups of J of one category, J drawn from 1..stack_size
    examples -> packs      of one category (they share its prefix) and of similar length, up to a token budget
    packs    -> steps      shuffled, then cut after `documents_per_step` documents
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpd_core import DocumentTokenizer, Record
from hpd_core.training.examples import Example, ExampleBuilder, LabelledDocument
from pipelines.config.finetuning import FinetuneConfig
from pipelines.quality.scoring import fold
from pipelines.training.labelled_products import LabelledProduct
from pipelines.training.swapped_values import swap_values, swappable_values

# Packs are cut from windows of so many packs, sorted by length: little padding, yet no fixed neighbours.
_PACKS_PER_WINDOW = 8

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
        self._swappable = {
            key: swappable_values(products[number] for number in group)
            for key, group in self._groups.items()
            if config.labels.swapped
        }
        self._ids = documents.encode([product.record for product in products])
        self.num_too_long = 0

    def epoch(self, number: int) -> list[TrainingStep]:
        """Draw the steps of epoch `number` (from 0)."""
        generator = random.Random(f"{self._config.seed}/{number}")
        self.num_too_long = 0
        packs = [pack for key in self._groups for pack in self._packs(key, generator)]
        generator.shuffle(packs)
        return list(self._steps(packs))

    def _packs(self, key: str, generator: random.Random) -> Iterator[Pack]:
        order = list(self._groups[key])
        generator.shuffle(order)
        yield from self._cut(list(self._examples(order, generator)))

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

    def _examples(self, order: Sequence[int], generator: random.Random) -> Iterator[Example]:
        rest = list(order)
        while rest:
            size = generator.randint(1, self._config.engine.stack_size) if self._config.layout == "stacked" else 1
            chosen, rest = rest[:size], rest[size:]
            schema = self._products[chosen[0]].schema
            documents = [self._document(number, generator) for number in chosen]
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

    def _document(self, number: int, generator: random.Random) -> LabelledDocument:
        product = self._products[number]
        share = self._config.labels.absent_share
        drawn = {name: None for name in product.assumed_absent if generator.random() < share}
        record, labels = product.record, dict(product.answers)
        if self._config.labels.swapped and generator.random() < self._config.labels.swapped:
            values = self._swappable[product.schema.hash]
            record, labels = swap_values(record, product.schema, labels, values, generator)
            if record is not product.record and self._config.labels.unlabelled == "absent_unless_known":
                drawn = _without_stated(drawn, record, product.known)
        ids = self._ids[number] if record is product.record else self._documents.encode([record])[0]
        return LabelledDocument(ids, {**drawn, **labels})

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

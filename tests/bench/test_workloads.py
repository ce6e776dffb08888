"""The benchmark's made-up workloads are what their names promise, in tokens."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from typing import Any

import pytest

from bench.workloads.listing_words import COLOURS
from bench.workloads.listings import LISTING_ATTRIBUTES, make_listing, make_title, make_variants
from bench.workloads.made_up import LISTING_TOKENS, make_workload
from bench.workloads.workload import Workload
from hpd_core import Attribute, CategorySchema, EngineConfig, PromptTemplate
from hpd_core.models import loading
from hpd_core.text.template import render_document
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.types import Record
from pipelines.errors import UsageError
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer, build_tokenizer

K_MAX = 30


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return loading.load_tokenizer("smollm2", EngineConfig())


def make(name: str, tokenizer: Any, limit: int | None = None, seed: int = 0) -> Workload:
    return make_workload(name, tokenizer, K_MAX, limit, seed)


@table("name", ["listings", "single"])
def test_listings_are_long_and_have_16_attributes(tokenizer: Any, name: str) -> None:
    workload = make(name, tokenizer)
    sizes = [len(ids) for ids in workload.documents]
    assert statistics.mean(sizes) == pytest.approx(LISTING_TOKENS, rel=0.02)
    assert min(sizes) > 0.9 * LISTING_TOKENS
    assert max(sizes) < 1.1 * LISTING_TOKENS
    assert {len(lengths) for lengths in workload.lengths} == {16}
    assert len({render_document(record.fields) for record in workload.records}) == len(workload.records)
    assert all(set(record.fields) == {"title", "bullets", "description"} for record in workload.records)


def test_titles_are_short_and_have_6_attributes_whose_answers_stand_in_them(tokenizer: Any) -> None:
    workload = make("titles", tokenizer)
    sizes = [len(ids) for ids in workload.documents]
    assert 20 <= statistics.mean(sizes) <= 30
    assert max(sizes) <= 40
    assert {len(lengths) for lengths in workload.lengths} == {6}
    draw = random.Random(3)
    for _ in range(50):
        listing = make_title(draw, "Kettle")
        stated = [items[0] for items in listing.answers if items is not None]
        assert len(stated) >= 3
        assert all(answer in listing.fields["title"] for answer in stated)


def test_variants_share_bullets_and_description_and_differ_behind_them(tokenizer: Any) -> None:
    workload = make("variants", tokenizer, 600)
    families: dict[str, list[int]] = {}
    for number, record in enumerate(workload.records):
        assert list(record.fields) in (
            ["bullets", "description", "title"],
            ["bullets", "description", "title", "variant"],
        )
        families.setdefault(record.fields["bullets"] + record.fields["description"], []).append(number)
    sizes = [len(members) for members in families.values()]
    assert min(sizes) == 1
    assert 15 < max(sizes) <= 20
    assert 4 < statistics.mean(sizes) < 7
    assert len({tuple(record.fields.values()) for record in workload.records}) == 600
    for members in families.values():
        beginnings = {tuple(workload.documents[number][:200]) for number in members}
        assert len(beginnings) == 1
    assert min(map(len, workload.documents)) > 200


def test_a_variant_says_its_own_colour_and_pack() -> None:
    draw, names = random.Random(3), [attribute.name for attribute in LISTING_ATTRIBUTES]
    found = Counter[bool]()
    for _ in range(20):
        made = make_variants(draw, "Kettle", LISTING_TOKENS, lambda texts: sum(len(text) // 4 for text in texts), 20)
        assert len({render_document(listing.fields) for listing in made}) == 20
        for listing in made:
            answers = dict(zip(names, listing.answers, strict=True))
            own = listing.fields.get("variant", listing.fields["title"])
            assert [colour for colour in COLOURS if colour in own] == answers["Colour"]
            assert own.lower().partition("pack of ")[2] == (answers["Pack count"] or [""])[0]
            found.update([own == listing.fields["title"], answers["Pack count"] is None])
    assert found[True] > 50
    assert found[False] > 50


def test_the_answers_stand_in_the_listing() -> None:
    draw = random.Random(3)
    found = Counter[str]()
    for _ in range(50):
        listing = make_listing(draw, "Kettle", LISTING_TOKENS, lambda texts: sum(len(text) // 4 for text in texts))
        text = render_document(listing.fields)
        for attribute, items in zip(LISTING_ATTRIBUTES, listing.answers, strict=True):
            if items is not None and attribute.type != "boolean":
                assert all(item in text for item in items), (attribute.name, items)
            found[attribute.name] += items is not None
    # Every attribute is stated now and again, and most are missing now and again.
    assert min(found.values()) > 15
    assert sum(count < 50 for count in found.values()) == 13


def test_most_skewed_values_are_of_2_tokens_and_a_few_of_k_max(tokenizer: Any) -> None:
    counts = Counter(length for lengths in make("skewed", tokenizer).lengths for length in lengths)
    assert set(counts) == {2, K_MAX}
    assert 0.02 < counts[K_MAX] / counts.total() < 0.08


def test_wide_products_have_64_attributes(tokenizer: Any) -> None:
    workload = make("wide", tokenizer)
    (schema,) = workload.schemas.values()
    assert len(schema.attributes) == 64
    assert {len(lengths) for lengths in workload.lengths} == {64}
    assert statistics.mean(len(ids) for ids in workload.documents) > 200


def test_there_are_1000_categories_of_5_products(tokenizer: Any) -> None:
    workload = make("categories", tokenizer)
    assert set(Counter(record.category for record in workload.records).values()) == {5}
    assert len(workload.schemas) == len({schema.attributes for schema in workload.schemas.values()}) == 1000
    few = make("categories", tokenizer, 12)
    assert sorted(Counter(record.category for record in few.records).values()) == [2, 5, 5]
    assert few.records == workload.records[:12]


@table("name", ["listings", "variants", "skewed", "wide"])
def test_the_seed_decides(tokenizer: Any, name: str) -> None:
    workload = make(name, tokenizer, 10)
    assert make(name, tokenizer, 10) == workload
    more = make(name, tokenizer, 14)
    assert (more.records[:10], more.lengths[:10]) == (workload.records, workload.lengths)
    assert make(name, tokenizer, 10, seed=1).records != workload.records


def test_a_workload_that_nobody_knows_is_an_error(tokenizer: Any) -> None:
    with pytest.raises(UsageError, match="--workload 'headlines': there are 'listings', 'titles', "):
        make("headlines", tokenizer)


@table("keys", ["full", "short"])
def test_who_decodes_values_apart_writes_nothing_behind_what_is_read(keys: Any) -> None:
    tokenizer = build_tokenizer()
    config = EngineConfig(prompt=PromptTemplate(keys=keys))
    shoes = CategorySchema(category="Shoes", attributes=(Attribute(name="Brand"), Attribute(name="Vegan")))
    records = [Record("0", "Shoes", {"t": "Velor"}), Record("1", "Shoes", {"t": "a shoe"})]
    workload = Workload.of_answers(tokenizer, {"Shoes": shoes}, records, [[["Velor"], None], [None, None]])
    value, null = map(len, SegmentTokenizer(tokenizer).encode_text([' "Velor",\n', " null,\n"]))
    assert null > 1
    assert workload.lengths == [[value, null], [null, null]]
    model_config = answering_model(tokenizer).config

    def lengths(layout: Any, changed: Workload = workload) -> list[list[int]]:
        made = config.model_copy(update={"layout": layout, "stack_size": 1})
        prepared = sorted(changed.prompts(model_config, made), key=lambda item: item.slots[0].trunk)
        return [item.layout.max_new_tokens.tolist() for item in prepared]

    own = value - 1  # the comma is the value's last token, not the newline
    assert workload.own_lengths == lengths("tree") == [[own, 1], [1, 1]]
    assert lengths("stacked") == workload.lengths
    whole_keys = sum(map(len, SegmentTokenizer(tokenizer).encode_text(['"Brand":', '"Vegan":'])))
    asked = {tuple(record.lengths): record.answer_length for record in workload.forced(model_config, config)}
    assert asked == {(own, 1): whole_keys + value + null + 1, (1, 1): whole_keys + 2 * null + 1}

    assert lengths("tree", workload.part([1])) == [[1, 1]]
    assert lengths("tree", workload.with_attributes(3)) == [[own, 1, own], [1, 1, 1]]
    assert lengths("tree", workload.with_values_of(4)) == [[4, 4], [4, 4]]


def test_work_is_changed_in_one_thing() -> None:
    tokenizer = answering_tokenizer()
    config = answering_model(tokenizer).config
    workload = make("skewed", tokenizer, 4)
    before = workload.prompts(config, EngineConfig())

    longer = workload.with_documents_of(99).prompts(config, EngineConfig())
    sizes = {item.slots[0].trunk: len(ids) for item in before for ids in [workload.documents[item.slots[0].trunk]]}
    for item in longer:
        old = next(other for other in before if other.slots[0].trunk == item.slots[0].trunk)
        assert item.layout.num_tokens - old.layout.num_tokens == 99 - sizes[item.slots[0].trunk]

    wider = workload.with_attributes(11)
    assert [item.layout.num_branches for item in wider.prompts(config, EngineConfig())] == [11] * 4
    assert [lengths[:8] for lengths in wider.lengths] == workload.lengths
    assert [lengths[8:] for lengths in wider.lengths] == [lengths[:3] for lengths in workload.lengths]
    narrower = workload.with_attributes(3).prompts(config, EngineConfig())
    assert [item.layout.num_branches for item in narrower] == [3] * 4

    for item in workload.with_values_of(7).prompts(config, EngineConfig()):
        assert item.layout.max_new_tokens.tolist() == [7] * 8

    part = workload.part([3, 1])
    assert isinstance(part.records[0], Record)
    assert [record.id for record in part.records] == [workload.records[3].id, workload.records[1].id]
    assert part.documents == [workload.documents[3], workload.documents[1]]
    assert part.num_values == 16

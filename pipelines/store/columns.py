"""Columns of a run's tables, each with its meaning. docs/reference/tables.md is generated from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

REPLACED = pa.struct(
    [
        pa.field("source", pa.string(), nullable=False),  # `model` or `review`
        pa.field("model_id", pa.string()),
        pa.field("adapter_revision", pa.string()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("value", pa.string()),  # its items joined by `; `
        pa.field("logprob_mean", pa.float64()),
        pa.field("probability", pa.float64()),
        pa.field("confidence", pa.float64()),
    ]
)

EVIDENCE = pa.struct(
    [
        pa.field("field", pa.string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),  # code points into the original field
        pa.field("end", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("match", pa.string(), nullable=False),  # MatchKind of hpd_core
        pa.field("before", pa.string()),  # the shown text around a number; null in runs that did not keep it
        pa.field("after", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; a required one is never null."""

    name: str
    type: pa.DataType
    description: str
    required: bool = False


def _required(name: str, kind: pa.DataType, description: str) -> Column:
    return Column(name, kind, description, required=True)


# What says where a row came from: (source_file, source_row) is its identity, product_id may be doubled.
_SOURCE = (
    _required("run_id", pa.string(), "name of the run"),
    _required("source_file", pa.string(), "file of the catalog that the row stands in"),
    _required(
        "source_row",
        pa.int64(),
        "its place in that file, counted from 0; in JSONL, lines. File and place together are the row's identity",
    ),
)
_PRODUCT = (
    _required("product_id", pa.string(), "the product's id, from `input.id`, or `<file stem>:<row>`"),
    _required("category", pa.string(), "the product's category"),
)

# What says how a value came about. Equal columns and equal input_hash promise an equal answer (in `products` only where
# nothing was carried over in part: some answers are of an older schema then).
_PROVENANCE = (
    _required("model_id", pa.string(), "the model that answered"),
    Column("model_revision", pa.string(), "its commit on the hub, or a digest of its files"),
    Column("adapter_revision", pa.string(), "the adapter's commit on the hub, or a digest of its settings and weights"),
    _required("schema_hash", pa.string(), "hash of the category's schema; a carried answer keeps that of the old one"),
    _required(
        "prompt_hash",
        pa.string(),
        "hash of all that the model reads around the document, the schema apart: the prompt's texts and what the "
        "tokenizer's chat template makes of them",
    ),
    _required("layout", pa.string(), "`tree`, `stacked`, or how else it was decoded"),
    _required(
        "input_hash",
        pa.string(),
        "hash of the category and of the fields that the model read, and of HTML as it stands",
    ),
)

ATTRIBUTE_COLUMNS = (
    *_SOURCE,
    *_PRODUCT,
    _required(
        "attribute", pa.string(), "name of the attribute, as the schema has it; in an object the whole: `size.width`"
    ),
    _required("value_index", pa.int32(), "0; further items of a `multiple` attribute are rows numbered 1, 2, ..."),
    Column(
        "value_raw",
        pa.string(),
        "the value as the model wrote it; a number as a plain decimal, one that a person wrote with its unit. Null "
        "when absent; what the model wrote when truncated or invalid",
    ),
    Column(
        "value_norm",
        pa.string(),
        "the value in the attribute's own form (docs/values.md): a plain decimal in its unit, a "
        "vocabulary's label, `true` or `false`, an ISO date, a tidied text. Null unless `norm_status` is `ok`. Items "
        "of a `multiple` attribute that say the same have the same one",
    ),
    Column("value_num", pa.float64(), "the value as a number, in `unit`"),
    Column("value_min", pa.float64(), "of a range, in `unit`; alone: at least that"),
    Column("value_max", pa.float64(), "of a range, in `unit`; alone: at most that"),
    Column("unit", pa.string(), "the attribute's unit; where it has none, the one that the text has with the number"),
    Column("value_id", pa.string(), "id of the vocabulary's member, in the system that the vocabulary is from"),
    Column(
        "norm_status",
        pa.string(),
        "`ok`; `ambiguous`: it can be read in several ways, or stands without its unit; `conflict`: it has a unit of "
        "another kind; `no_rule`: nothing says how to read it. Null where there is no value, and in older runs",
    ),
    _required(
        "status",
        pa.string(),
        "`value`; `absent`: there is none, as the model says; `truncated`: cut at `max_value_tokens`; "
        "`invalid`: no JSON value, of the wrong type or outside the enum; `error`",
    ),
    Column(
        "evidence",
        pa.list_(pa.field("element", EVIDENCE)),
        "where the value stands in the text, 16 places at most: `field`, `start` and `end` (code points), `text`, and "
        "`match`: `exact`, `folded` or `fuzzy`; of numbers `exact`, `equal number` (1500 in `1,500 g`) or `ambiguous` "
        "(1.125 in `1.125 inch`; of a text, 500 ml in `1 500 ml`). `before` and `after`: of what has a digit, 32 "
        "code points of the shown text around it. Empty: it stands nowhere. Null: there is no value to look for",
    ),
    _required("num_tokens", pa.int32(), "tokens generated for the attribute, all of its items together"),
    _required("num_dropped", pa.int32(), "characters after the value that were dropped"),
    Column(
        "logprob_mean", pa.float64(), "mean log probability of a token; `exp(num_tokens * logprob_mean)`: the answer's"
    ),
    Column("logprob_min", pa.float64(), "log probability of the least certain token"),
    Column(
        "choice",
        pa.string(),
        "how an answer was chosen that can only be one of few (enum, boolean, stated number, verbatim text): "
        "`scored`: the likeliest of all; `beam`: the likeliest of those that `engine.max_scored_tokens` had room for; "
        "`greedy`: token by token. Null for others",
    ),
    Column(
        "probability",
        pa.float64(),
        "the model's probability of the answer: of a scored one, its share among all that it could be, null among "
        "them; of another, `exp(num_tokens * logprob_mean)`; null below `engine.answer_threshold`",
    ),
    Column("margin", pa.float64(), "of a scored answer: how much likelier than the next one, as a logarithm"),
    Column(
        "confidence",
        pa.float64(),
        "the probability that the value is right, as the calibration's products have shown (docs/trust.md). Null "
        "without a calibration, and where there is no value",
    ),
    Column(
        "decision",
        pa.string(),
        "`accept`: may be taken at the precision that `accept.precision` asks for; `review`: not without a look. Null "
        "where no precision is asked for, and where the model says that the text does not state it",
    ),
    Column(
        "source",
        pa.string(),
        "`model`; `review`: a person's answer took its place; `column`: copied by `input.copied`. Null in older runs",
    ),
    Column(
        "replaced",
        pa.list_(pa.field("element", REPLACED)),
        "answers whose place this one took, the latest last: those of a smaller model (`cascade`), and of the model "
        "where a person corrected it. On the row of `value_index` 0; null: none",
    ),
    *_PROVENANCE,
    Column("carried_from", pa.string(), "the earlier run that decoded it (`base`); null if this one did"),
)

PRODUCT_COLUMNS = (
    *_SOURCE,
    *_PRODUCT,
    _required(
        "values",
        pa.map_(pa.string(), pa.string()),
        "every attribute of the schema and its value: null unless the status is `value`, several items joined by `; `",
    ),
    _required("num_value", pa.int32(), "attributes with a value"),
    _required("num_absent", pa.int32(), "attributes that the text does not state"),
    _required("num_truncated", pa.int32(), "answers that were cut"),
    _required("num_invalid", pa.int32(), "answers that are no valid value"),
    Column(
        "engine_seconds",
        pa.float64(),
        "the engine's time for this product alone, each step split by tokens; null where nothing was decoded for it",
    ),
    *_PROVENANCE,
    Column(
        "cascade_seconds",
        pa.float64(),
        "the larger model's time for this product alone (`cascade`); 0 where it was not asked, null without it",
    ),
    Column("carried_from", pa.string(), "the run that `base` named, if all answers are from there"),
)

DEAD_LETTER_COLUMNS = (
    *_SOURCE,
    Column("product_id", pa.string(), "the product's id, if the row has one"),
    Column("category", pa.string(), "the product's category, if the row has one"),
    _required("stage", pa.string(), "`prepare` or `decode`"),
    _required("error_code", pa.string(), "the reason, in a word"),
    _required("error", pa.string(), "the reason, in a sentence"),
    Column("row_json", pa.string(), "the whole row, or the broken line, for a repair and a second run"),
    _required("attempts", pa.int32(), "times it was tried"),
)

METRIC_COLUMNS = (
    _required("run_id", pa.string(), "name of the run"),
    _required("shard", pa.int64(), "number of the shard"),
    Column(
        "pass",
        pa.int32(),
        "1; with `cascade` a shard has a second row, 2: what the larger model did. Rows, products, dead letters and "
        "bytes are counted in the first row alone, so that sums over the table are right. Null in older runs: 1",
    ),
    _required("attempt_id", pa.string(), "name of the try that was committed"),
    _required("retries", pa.int32(), "earlier tries at this shard, in every session"),
    _required("num_rows", pa.int64(), "rows of the catalog"),
    _required("num_products", pa.int64(), "rows that were extracted"),
    _required("num_dead_letters", pa.int64(), "rows that were not"),
    Column("num_carried", pa.int64(), "products all of whose answers are from an earlier run"),
    _required("num_values", pa.int64(), "answers, whatever their status"),
    _required("estimated_tokens", pa.int64(), "what the plan estimated"),
    _required("prefix_tokens_computed", pa.int64(), "tokens of categories' prefixes that were forwarded"),
    _required("prefix_tokens_reused", pa.int64(), "tokens of prefixes that were remembered"),
    _required("document_tokens", pa.int64(), "tokens of product texts that were forwarded"),
    Column(
        "document_tokens_shared",
        pa.int64(),
        "tokens of product texts that were not: other texts begin with the same, which was forwarded once for all",
    ),
    _required("key_tokens", pa.int64(), "tokens of attribute names, which are fed"),
    _required("value_tokens", pa.int64(), "tokens of values, which are decoded"),
    Column("scored_tokens", pa.int64(), "tokens forwarded to score closed answers (`engine.max_scored_tokens`)"),
    _required("num_steps", pa.int64(), "forward passes"),
    _required("started_at", pa.timestamp("us", tz="UTC"), "when work on it began"),
    _required("finished_at", pa.timestamp("us", tz="UTC"), "when it was ready to commit"),
    _required("prepare_seconds", pa.float64(), "reading, checking, tokenizing; without loading the tokenizer"),
    _required("busy_seconds", pa.float64(), "the engine's time, shared out by tokens forwarded"),
    Column(
        "prefix_seconds",
        pa.float64(),
        "of `busy_seconds`: prefixes and shared text, which no single product has to pay",
    ),
    Column(
        "retry_seconds", pa.float64(), "tries that failed, from start to end; other shards may have run beside them"
    ),
    _required("load_seconds", pa.float64(), "loading the model, on the first shard of an actor only"),
    _required("wall_seconds", pa.float64(), "time in the decode stage, waiting included"),
    Column("idle_seconds", pa.float64(), "in which the engine had no shard at all, up to this one's start"),
    _required("finish_seconds", pa.float64(), "from answers to tables"),
    Column("bytes_read", pa.int64(), "of the input as stored: whole row groups, the mapped columns"),
    Column("bytes_written", pa.int64(), "of the other three tables, as stored"),
    _required("device", pa.string(), "what computed"),
    Column("gpu_type", pa.string(), "the GPU's name"),
    Column("node_id", pa.string(), "Ray's id of the node"),
    Column("actor_id", pa.string(), "Ray's id of the actor"),
    Column(
        "billed_seconds",
        pa.float64(),
        "the engine's life since the last shard that ended in it, or since its start: loading and waiting included",
    ),
    Column("instance_type", pa.string(), "kind of machine"),
    Column("market", pa.string(), "`on-demand` or `spot`"),
    Column("node_share", pa.float64(), "the engine's part of its machine"),
    Column(
        "price_per_hour",
        pa.float64(),
        "of the engine: its machine's price by its share of the GPUs; of one without, by the pool's size, or by "
        "as many engines as its CPUs hold. Null where the price is not known",
    ),
    Column("price_source", pa.string(), "where the price is from"),
    Column("cost_useful", pa.float64(), "`busy_seconds`, priced"),
    Column("cost_billed", pa.float64(), "`billed_seconds`, priced"),
    Column("currency", pa.string(), "of price and cost"),
)

COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "attributes": ATTRIBUTE_COLUMNS,
    "products": PRODUCT_COLUMNS,
    "dead_letter": DEAD_LETTER_COLUMNS,
    "metrics": METRIC_COLUMNS,
}

ERROR_CODES = (
    ("null_id", "prepare", "the id's column is empty"),
    ("null_category", "prepare", "the category's column is empty"),
    ("no_schema", "prepare", "the schema file does not know the category"),
    ("no_text", "prepare", "every text column is empty"),
    ("wrong_type", "prepare", "a cell is no text, number or list of them"),
    ("doubled_column", "prepare", "a column that is read stands twice in the row"),
    ("broken_line", "prepare", "a JSONL line is no JSON object, or a record of CSV is not whole"),
    ("unreadable", "prepare", "the Parquet file is damaged there, or a cell's bytes are no text"),
    ("too_long", "prepare, decode", "the product does not fit the model's context, or any"),
    ("not_text", "decode", "the engine cannot take the text; the message says why"),
    ("control_tokens", "decode", "the text holds control tokens that cannot be told apart from the prompt's own"),
    ("engine", "decode", "the engine cannot take the record; the message says why"),
    ("decode_failed", "decode", "the engine failed on it again and again, also when it was alone"),
)
"""Reasons for a dead letter: the code, the stage that refused the row, and what it means."""

"""Stage 2: one engine, with several shards in it at once.

`actors.max_in_flight` threads call it. Each hands its shard to the same engine and waits, so the hardware does not
drain between shards.

A shard that fails is retried alone in a fresh engine, so that it and its neighbours cannot make each other fail. Then
it is retried in parts, down to the record that is to blame (store/isolation.py). Each try is recorded before it begins,
so one that kills the process counts as well. One that only waited for its turn while another killed the process does
not.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

import torch
import transformers

from hpd_core import AutoregressiveBaseline, Engine, ExtractionFuture, HPDError, NullEngine, RecordResult
from hpd_core.decoding.memory import halved
from hpd_core.errors import EngineError, StorageError
from hpd_core.extractor import Extractor
from hpd_core.system.device import is_out_of_memory, num_cpus
from pipelines.config.extraction import JobConfig
from pipelines.console.exit_codes import EXIT_STOPPED, complain, stopped
from pipelines.console.progress import about
from pipelines.errors import RunError, UsageError, causes
from pipelines.job.context import DecodedShard, EnginePlace, JobContext, PreparedShard, check_code
from pipelines.job.prices import engine_price
from pipelines.quality.calibration_file import CalibratedModel
from pipelines.quality.run_confidence import run_confidence
from pipelines.store.isolation import Span, partition

logger = logging.getLogger(__name__)

Results = Sequence[RecordResult | None]

_ENGINES: Mapping[str, type[Extractor]] = {kind.decoding: kind for kind in (Engine, AutoregressiveBaseline, NullEngine)}


def load_engine(config: JobConfig) -> Extractor:
    """Load the decoder that the job asks for. Raises `HPDError` with a message for the user."""
    transformers.logging.disable_progress_bar()  # the run has its own
    return _ENGINES[config.decoding].from_pretrained(config.model, config.engine, config.adapter)


def describe_engine(config: JobConfig, code: str) -> dict[str, Any]:
    """Return the description of the job's engine: load one and close it. Raises as `ShardDecoder`, and unless `code` is
    this process's digest."""
    check_code(code)
    with explained(), load_engine(config) as engine:
        description = dict(engine.describe())
    del engine
    free_memory()  # the next engine may need it
    return description


def free_memory() -> None:
    """Free memory that is no longer referenced, of frozen models as well."""
    gc.unfreeze()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of loading an engine into `RunError` (a retry may help) or `UsageError`."""
    try:
        yield
    except (OSError, HPDError) as error:
        if isinstance(error, (OSError, EngineError)) or isinstance(error.__cause__, StorageError):
            # A storage, a disk, a process of the engine that died: it may work next time.
            raise RunError(f"the engine does not start: {error}") from error
        raise UsageError(str(error)) from error


def place_here(job: JobContext) -> EnginePlace:
    """Return the place of an engine of this process, which has one of each of the job's models."""
    config, num_engines = job.config, 1 if job.others is None else 2
    has_gpu = torch.cuda.is_available() and config.engine.device != "cpu"
    share = min(1.0, config.engine.tensor_parallel / torch.cuda.device_count()) if has_gpu else 1.0
    return EnginePlace(share / num_engines, config.actors.num_threads or max(1, num_cpus() // num_engines))


@dataclass(frozen=True, slots=True)
class _Questions:
    """Input of an engine for the records of a shard.

    Attributes:
        document_ids: token ids by record.
        wanted: attributes to answer, by record; None for all. A record without wanted attributes keeps its place, so
            that spans of records do not depend on what is wanted.
    """

    document_ids: Sequence[Sequence[int]]
    wanted: Sequence[Collection[str] | None]

    def places(self, span: Span) -> list[int]:
        """Return the indices of the span's records that have wanted attributes."""
        return [index for index in span.indices if self.wanted[index] is None or self.wanted[index]]


class ShardDecoder:
    """Decoder of shards with one engine. Safe to call from several threads."""

    def __init__(self, job: JobContext, place: EnginePlace | None = None) -> None:
        """Load the engine.

        Args:
            place: by default in this process.

        Raises:
            UsageError: it cannot be loaded or does not fit the run.
            RunError: a storage is away.
        """
        self._billed_until = time.monotonic()
        self._billing = threading.Lock()
        self._job = job
        self._ledger = job.ledger
        self._gate = EngineGate()
        self._has_failed = False
        self._is_closed = False
        self._swapping = threading.Lock()
        self._place = place_here(job) if place is None else place
        # Ray gives its workers one OpenMP thread per reserved CPU; an engine without a GPU wants its share of the node.
        torch.set_num_threads(self._place.num_threads)
        self._price = engine_price(job.config.cost, self._place.node_share)
        self._under_way: set[ExtractionFuture] = set()
        self._unreported_load_seconds = 0.0
        self._settings = job.config.engine
        self._load()

    def _load(self) -> None:
        with explained():
            self._engine = load_engine(self._job.config.model_copy(update={"engine": self._settings}))
            self._description = dict(self._engine.describe())
            self._ledger.check_engine(self._description)
            model = CalibratedModel.of(self._description)
            run_confidence(self._job.output).check(model, of_larger=self._job.is_larger)
        self._unreported_load_seconds += float(self._engine.load_seconds)

    def decode(self, prepared: PreparedShard) -> DecodedShard:
        """Return the shard with its answers, and the reasons for records given up. Never raises for its content."""
        schemas = self._job.schemas
        wanted = [
            each.wanted(schemas[each.record.category]) if each.carried or each.copied else None
            for each in prepared.records
        ]
        decoded = self._answer(prepared, _Questions(prepared.document_ids, wanted))
        # A fifth of the message, and nothing after the engine reads them.
        decoded.prepared = replace(prepared, document_ids=())
        return decoded

    def decode_again(self, first: DecodedShard) -> DecodedShard:
        """Return the shard with this engine's answers to what is asked again. Never raises for its content."""
        look = first.second
        assert look is not None, "what is to be asked again is found out before"
        pairs = list(zip(look.document_ids, look.asked, strict=True))
        wanted = [[] if ids is None else list(asked) for ids, asked in pairs]
        answers = self._answer(first.prepared, _Questions([ids or () for ids, _ in pairs], wanted))
        first.second = replace(look, document_ids=(), answers=answers)
        return first

    def _answer(self, prepared: PreparedShard, questions: _Questions) -> DecodedShard:
        shard, num_records = prepared.shard.id, len(prepared.records)
        decoded = DecodedShard(prepared, engine=self._describe())
        found: dict[Span, Results] = {}
        while questions.places(Span(0, num_records)):
            history = self._ledger.history(shard)
            decoded.num_attempts = history.num_tries
            parts = partition(num_records, history.tries, self._job.config.retries.max_attempts)
            to_do = [span for span in parts.spans if span not in found]
            for span in to_do:
                results = self._try(decoded, questions, span, is_first=not history.tries)
                if results is None:
                    break  # what to try next depends on it
                found[span] = results
            if all(span in found for span in parts.spans):
                for span in parts.spans:
                    decoded.results[span.start : span.stop] = found[span]
                decoded.failures = {index: why for span, why in parts.given_up.items() for index in span.indices}
                break
        decoded.metrics["billed_seconds"] = self._bill()
        logger.info(
            "decoded",
            extra=about(
                shard,
                attempt=decoded.attempt_id,
                records=num_records,
                given_up=len(decoded.failures),
                busy_seconds=decoded.metrics.get("busy_seconds"),
            ),
        )
        return decoded

    def _bill(self) -> float:
        """Return the seconds since the last shard ended in this engine; the shard that ends now is billed for them."""
        with self._billing:
            now = time.monotonic()
            seconds, self._billed_until = now - self._billed_until, now
        return seconds

    def _try(self, decoded: DecodedShard, questions: _Questions, span: Span, *, is_first: bool) -> Results | None:
        """Try some records of the shard once; return None if it failed. Its metrics are added to the shard's."""
        prepared, shard, places = decoded.prepared, decoded.prepared.shard.id, questions.places(span)
        if not places:
            return [None] * len(span)
        decoded.num_attempts += 1
        started = time.perf_counter()
        suspect = not is_first or self._has_failed
        with self._gate.hold(alone=suspect) as idle_seconds:
            if suspect and self._has_failed:
                # Before the try is on record: an engine that does not start again is not the records' fault.
                self._reload()
            if self._is_closed:
                raise EngineError("the engine is closed")
            attempt = decoded.attempt_id = self._ledger.begin_try(shard, decoded.num_attempts, span)
            begun = time.perf_counter()
            try:
                records = [prepared.records[index].record for index in places]
                wanted = [questions.wanted[index] for index in places]
                document_ids = [questions.document_ids[index] for index in places]
                all_wanted = all(each is None for each in wanted)
                future = self._engine.submit(records, self._job.schemas, document_ids, None if all_wanted else wanted)
                self._under_way.add(future)
                try:
                    results = self._wait(future, shard, attempt)
                finally:
                    self._under_way.discard(future)
                if len(results) != len(records):
                    raise RuntimeError(f"{len(records)} records went into the engine, {len(results)} came out")
            except Exception as error:
                if self._is_closed:
                    self._ledger.end_try(shard, attempt, "the run was stopped")
                    raise
                logger.warning(
                    "the try failed", exc_info=True, extra=about(shard, attempt=attempt, records=len(span.indices))
                )
                self._has_failed = True
                self._take_less_memory(error)
                self._ledger.end_try(shard, attempt, f"{type(error).__name__}: {error}")
                lost = time.perf_counter() - begun
                decoded.metrics["retry_seconds"] = decoded.metrics.get("retry_seconds", 0.0) + lost
                return None
            # With a second model after this one, the commit may be far away.
            if len(span) < len(prepared.records) or self._job.config.cascade is not None:
                self._ledger.end_try(shard, attempt)
            load_seconds, self._unreported_load_seconds = self._unreported_load_seconds, 0.0
        measured = asdict(future.metrics) | {
            "load_seconds": load_seconds,
            "idle_seconds": idle_seconds,
            "wall_seconds": time.perf_counter() - started,
        }
        for name, value in measured.items():
            decoded.metrics[name] = decoded.metrics.get(name, 0) + value
        of_span: list[RecordResult | None] = [None] * len(span)
        for index, result in zip(places, results, strict=True):
            of_span[index - span.start] = result
        return of_span

    def _take_less_memory(self, error: Exception) -> None:
        """Halve the limits of the next engine if memory ran out and this one could not halve them itself."""
        limits = self._engine.limits
        smaller = None if limits is None else halved(limits)
        shared = self._settings.tensor_parallel > 1  # alone, an engine goes on with smaller steps
        if shared and smaller is not None and any(is_out_of_memory(cause) for cause in causes(error)):
            self._settings = self._settings.model_copy(update=asdict(smaller))
            logger.warning(
                "out of memory: the engine is loaded anew with max_tokens_per_step %d, max_prompts_per_cohort %d, "
                "max_cached_tokens %d",
                *(smaller.max_tokens_per_step, smaller.max_prompts_per_cohort, smaller.max_cached_tokens),
            )

    def _wait(self, future: ExtractionFuture, shard: int, attempt: str) -> list[RecordResult]:
        minutes = self._job.config.retries.max_minutes
        try:
            return future.result(timeout=60 * minutes)
        except TimeoutError:
            if future.done():
                return future.result()
            # The engine's own thread hangs: nothing but a new process helps.
            problem = f"not decoded within retries.max_minutes ({minutes:g})"
            logger.error("%s: the process ends", problem, extra=about(shard, attempt=attempt))
            try:
                self._ledger.end_try(shard, attempt, problem)
            finally:
                _end_process(f"shard {shard}: {problem}")

    def _describe(self) -> dict[str, Any]:
        price = self._price
        cost = {
            "instance_type": price.instance.instance_type,
            "market": price.instance.market,
            "node_share": self._place.node_share,
            "price_per_hour": price.usd_per_hour,
            "price_source": price.source,
        }
        return self._description | dict(self._place.ids) | cost

    def _reload(self) -> None:
        """Replace a failed engine, which may have lost its state. If not even a new one starts, end the process so that
        Ray starts another: a dead CUDA context stays dead as long as the process."""
        with self._swapping:
            if self._is_closed:
                return
            try:
                self._engine.close()
                # Two models at once may be more than the device holds.
                del self._engine
                free_memory()
                self._load()
            except Exception as error:
                logger.exception("the engine does not start again; the process ends")
                _end_process(f"the engine does not start again: {error}")
            self._has_failed = False

    @property
    def num_decoded(self) -> int:
        """Number of already decoded records of the shards in the engine."""
        return sum(future.metrics.num_records for future in list(self._under_way))

    def close(self) -> None:
        """Free the engine. Shards that are still being decoded raise in the threads that wait for them."""
        self._is_closed = True
        with self._swapping:
            self._engine.close()


def _end_process(reason: str) -> NoReturn:
    """End this process. Ray starts another; without Ray, the user does."""
    if sys.stderr.isatty():
        print("\x1b[?25h", end="", file=sys.stderr)  # the cursor, which a progress bar has hidden
    code = complain(EXIT_STOPPED, stopped(reason))
    sys.stderr.flush()
    os._exit(code)


class EngineGate:
    """Lock with shared and exclusive holders; a waiting exclusive holder is let in before new shared ones."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._num_inside = 0
        self._alone = False
        self._num_waiting_alone = 0
        self._idle_since = time.perf_counter()

    @contextmanager
    def hold(self, *, alone: bool) -> Iterator[float]:
        """Wait for the gate; yield the seconds for which it had no holder before."""
        with self._condition:
            if alone:
                self._num_waiting_alone += 1
                self._condition.wait_for(lambda: self._num_inside == 0)
                self._num_waiting_alone -= 1
                self._alone = True
            else:
                self._condition.wait_for(lambda: not self._alone and self._num_waiting_alone == 0)
            idle = time.perf_counter() - self._idle_since if self._num_inside == 0 else 0.0
            self._num_inside += 1
        try:
            yield idle
        finally:
            with self._condition:
                self._num_inside -= 1
                self._alone = False
                if self._num_inside == 0:
                    self._idle_since = time.perf_counter()
                self._condition.notify_all()

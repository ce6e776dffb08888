"""Process of rank 1 or higher: it loads its part, then does what rank 0 tells it."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from hpd_core.errors import HPDError
from hpd_core.models import description, loading, steering
from hpd_core.parallel.ranks import Ranks, SharedDecoder
from hpd_core.parallel.tensor_parallel import (
    BROKEN,
    FULL,
    HERE,
    HOST,
    LOADED,
    LONGEST_WAIT,
    READY,
    WRONG,
    Setup,
    take_device,
)
from hpd_core.system.device import is_out_of_memory
from hpd_core.text.tokenization import SegmentTokenizer


def follow() -> None:
    """Run a process of rank 1 or higher: load its part, then do what rank 0 tells it."""
    # The pipe to the leader is for a few words; what others print belongs into the log.
    answer = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def say(word: str) -> None:
        answer.write(" ".join(word.split()).encode() + b"\n")

    try:
        setup: Setup = pickle.load(sys.stdin.buffer)
        orders: SimpleQueue[tuple[str, tuple[Any, ...]]] = SimpleQueue()
        threading.Thread(target=_listen, args=[orders], name="hpd-listen", daemon=True).start()
        take_device(setup.config, setup.rank)
        store = TCPStore(HOST, setup.port, setup.config.tensor_parallel, False, LONGEST_WAIT)
        # If one ended while they meet, rank 0 would wait for it, and could not meet others after that: torch numbers
        # the tries of a process. So all else comes before.
        say(HERE)
        place = Ranks(setup, store)
        tokenizer = loading.load_tokenizer(setup.model, setup.config)
        orders.get()  # its turn to load
        model = place.load(tokenizer)[0].model
        say(LOADED)
        steering.attach(model)
        endings = description.endings(model, SegmentTokenizer(tokenizer))
        decoder = SharedDecoder(place, model, endings, setup.config)
        steering.run_probe(model, tokenizer, decoder)
        decoder.fit()
        say(READY)
        while True:
            name, arguments = orders.get()
            getattr(decoder, name)(*arguments)
    except BaseException as error:
        traceback.print_exc()
        kind = FULL if is_out_of_memory(error) else BROKEN
        say(f"{WRONG}{error}" if isinstance(error, HPDError) else f"{kind}{type(error).__name__}: {error}")
        os._exit(1)  # not in order: a thread reads from the pipe


def _listen(orders: SimpleQueue[tuple[str, tuple[Any, ...]]]) -> None:
    try:
        while True:
            orders.put(pickle.load(sys.stdin.buffer))
    except EOFError:
        pass  # the leader is gone, or has told all there was: whatever the main thread waits for will not come
    finally:
        os._exit(0)

"""Sweeps over all model types, each in a process of its own: `python -m tests.core.sweep --help`."""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import transformers
import transformers.models.llama.modeling_llama  # what all have in common is imported once, by the server

from tests.core.sweep.configs import REACHES
from tests.core.sweep.outcome import LAYOUTS, Outcome, outcomes
from tests.core.sweep.record import Record
from tests.core.sweep.types import model_types

TIME_LIMIT = 240.0
"""Seconds that one type may take."""

_CONTEXT = mp.get_context("forkserver")
"""Its children are of a process that never computed: a fork of one whose OpenMP threads have run waits for ever."""
_CONTEXT.set_forkserver_preload(["tests.core.sweep.__main__"])


def swept(name: str, time_limit: float = TIME_LIMIT) -> list[Outcome]:
    """The outcomes of one type, from a process of its own: what ends the process is an outcome, too."""
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_send_outcomes, args=(name, sender))
    process.start()
    sender.close()
    try:
        if not receiver.poll(time_limit):
            return _failed(name, f"it takes more than {time_limit:.0f} s")
        found: list[Outcome] = receiver.recv()
        return found
    except EOFError:
        process.join()
        return _failed(name, f"the process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()


def _failed(name: str, reason: str) -> list[Outcome]:
    return [Outcome(name, layout, reach, "crash", reason) for reach in REACHES for layout in LAYOUTS]


def _send_outcomes(name: str, sender: mp.connection.Connection) -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    sender.send(outcomes(name))


def sweep(names: list[str], num_processes: int) -> Iterator[list[Outcome]]:
    """The outcomes of each type, in order."""
    with ThreadPoolExecutor(num_processes) as pool:
        yield from pool.map(swept, names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--types", help="only these, with commas between them")
    parser.add_argument("--out", type=Path, help="where the outcomes go, as JSON; those of other types stay there")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    known = model_types()
    names = arguments.types.split(",") if arguments.types else list(known)
    by_type = Record.read(arguments.out).by_type if arguments.out and arguments.out.exists() else {}
    for found in sweep(names, arguments.processes):
        by_type[found[0].type] = found
        print(found[0].type, *(f"{item.layout}/{item.reach}: {item.kind}" for item in found), sep="  ", flush=True)
        for reason in sorted({item.reason for item in found if item.reason}):
            print("   ", reason[:200], flush=True)
        if arguments.out:
            Record.of(by_type[name] for name in known if name in by_type).write(arguments.out)
    for row in zip(*(by_type[name] for name in names), strict=True):
        print(f"{row[0].layout}, {row[0].reach}:", dict(Counter(item.kind for item in row)))


if __name__ == "__main__":
    # Children find functions by the name of their module, which this is not now.
    from tests.core.sweep import __main__ as by_name

    by_name.main()

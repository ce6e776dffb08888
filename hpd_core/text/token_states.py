"""Automata over tokens: which tokens may be written next, compiled from an automaton over bytes.

    ' "red",\\n'    may be written as ' "', 'red', '",\\n', or as ' "', 'r', 'ed', '",', '\\n': all are accepted

The code works on whole arrays: a vocabulary of 20,000 values has hundreds of thousands of nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers.convert_slow_tokenizer import bytes_to_unicode

from hpd_core.layout import IntArray
from hpd_core.text.endings import token_grid
from hpd_core.text.kind_automata import Automaton
from hpd_core.text.tokenization import SegmentTokenizer

_NODES_AT_ONCE = 2**15  # so that intermediate arrays take some MB


class TokenBytes:
    """Bytes of every token of a vocabulary, as a trie: a token's bytes lead from node 0 to its node.

    Attributes:
        ids: tokens by their bytes, possibly several (a letter may have a byte token, too), without control tokens.
    """

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        """Take `vocab_size`, the columns of the logits; a tokenizer may know more tokens than the model."""
        segments = SegmentTokenizer(tokenizer)
        special = frozenset(tokenizer.all_special_ids)
        of_bytes = _has_letters_for_bytes(tokenizer)
        alphabet = {text: byte for byte, text in bytes_to_unicode().items()} if of_bytes else None
        self.ids: dict[bytes, list[int]] = {}
        for index, token in enumerate(tokenizer.convert_ids_to_tokens(list(range(min(vocab_size, len(tokenizer)))))):
            is_text = token is not None and index not in special and not segments.has_control([index])
            text = _token_bytes(token, alphabet) if is_text else None
            if text:
                self.ids.setdefault(text, []).append(index)
        self._build_trie()

    def _build_trie(self) -> None:
        nodes = {b"": 0}
        steps: list[int] = []
        for text in self.ids:
            for size in range(1, len(text) + 1):
                if text[:size] not in nodes:
                    steps.append(nodes[text[: size - 1]] * 256 + text[size - 1])
                    nodes[text[:size]] = len(nodes)
        keys = np.array(steps, dtype=np.int64)
        self.steps = _Steps(keys // 256, keys % 256, np.arange(1, len(nodes)))
        self._children = np.searchsorted(self.steps.keys, np.arange(len(nodes) + 1) * 256)
        self._goes_on = np.zeros(len(nodes), dtype=bool)
        self._goes_on[keys // 256] = True
        places = [nodes[text] for text, ids in self.ids.items() for _ in ids]
        written = np.array([index for ids in self.ids.values() for index in ids], dtype=np.int64)
        self._tokens = written[np.argsort(places, kind="stable")]
        self._first = np.searchsorted(np.sort(places), np.arange(len(nodes) + 1))

    def num_children(self, nodes: IntArray) -> int:
        """Return the number of children of these nodes."""
        return int((self._children[nodes + 1] - self._children[nodes]).sum())

    def children(self, nodes: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the children of these nodes, the byte that leads to each, and the index of its parent in `nodes`."""
        places, parts = ranges(self._children, nodes)
        return self.steps.targets[places], self.steps.keys[places] % 256, parts

    def tokens(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Return the tokens of these nodes, and for each the index of its node in `nodes`."""
        return ranges(self._first, nodes, self._tokens)

    def goes_on(self, nodes: IntArray) -> npt.NDArray[np.bool_]:
        """Return whether each node has children: some token writes more than its bytes."""
        return self._goes_on[nodes]


def _has_letters_for_bytes(tokenizer: Any) -> bool:
    """Return whether token names have one letter per byte, as GPT-2's."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:  # of a class in Python, as Kimi's
        return "Ġ" in "".join(tokenizer.tokenize(" x"))
    return '"ByteLevel"' in json.dumps(json.loads(backend.to_str())["decoder"])


def _token_bytes(token: str, alphabet: Mapping[str, int] | None) -> bytes | None:
    if alphabet is None:
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        return token.replace("▁", " ").encode()
    # Added tokens may hold characters that stand for no byte: they are left out.
    return bytes(alphabet[text] for text in token) if all(text in alphabet for text in token) else None


@dataclass(frozen=True, slots=True)
class TokenStates:
    """Automaton over tokens. State s allows the tokens `ids[offsets[s] : offsets[s + 1]]`, in ascending order.

    State 0 is the start, the last one is the end. The end's only way is a token to itself, so that no state has none.

    Attributes:
        offsets: int64 [states + 1]
        ids, behind: int64 [ways], the tokens and the state after each.
    """

    offsets: IntArray
    ids: IntArray
    behind: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def accepts(self, answers: Sequence[Sequence[int]]) -> bool:
        """Return whether every answer, as tokens, leads from the start to the end."""
        tokens, sizes = token_grid(answers)
        span = int(max(self.ids.max(), tokens.max(initial=0))) + 1
        ways = np.repeat(np.arange(len(self)), np.diff(self.offsets)) * span + self.ids
        states = np.zeros(len(answers), dtype=np.int64)
        for place in range(tokens.shape[1]):
            rows = np.nonzero(sizes > place)[0]
            wanted = states[rows] * span + tokens[rows, place]
            places = np.minimum(np.searchsorted(ways, wanted), len(ways) - 1)
            if not (ways[places] == wanted).all():
                return False
            states[rows] = self.behind[places]
        return bool((states == len(self) - 1).all())


def compile_automaton(automaton: Automaton, tokens: TokenBytes) -> TokenStates | None:
    """Compile an automaton over bytes to one over tokens. From every state there is a path to the end.

    Return None if there is none from the start.
    """
    sources, ids, targets = _token_ways(automaton, tokens)
    alive = _reached(automaton.num_nodes, automaton.end, targets, sources)
    alive &= _reached(automaton.num_nodes, automaton.start, sources, targets)
    if not alive[automaton.start]:
        return None
    inner = np.setdiff1d(np.nonzero(alive)[0], [automaton.start, automaton.end])
    numbers = np.zeros(automaton.num_nodes, dtype=np.int64)
    numbers[inner], numbers[automaton.end] = np.arange(1, len(inner) + 1), len(inner) + 1
    kept = alive[sources] & alive[targets]
    sources, ids, targets = numbers[sources[kept]], ids[kept], numbers[targets[kept]]
    # In order, so that of equal logits the lowest id wins, as without constraints.
    order = np.lexsort((ids, sources))
    sources, ids, targets = sources[order], ids[order], targets[order]
    end = len(inner) + 1
    offsets = np.append(np.searchsorted(sources, np.arange(end + 1)), len(sources) + 1)
    return TokenStates(offsets, np.append(ids, ids[0]), np.append(targets, end))


def _token_ways(automaton: Automaton, tokens: TokenBytes) -> tuple[IntArray, IntArray, IntArray]:
    """Return (nodes, tokens, nodes after them) of all tokens writable at each node."""
    first = np.searchsorted(automaton.sources, np.arange(automaton.num_nodes + 1))
    steps = _Steps(automaton.sources, automaton.bytes_, automaton.targets)
    found: list[tuple[IntArray, IntArray, IntArray]] = [(np.zeros(0, dtype=np.int64),) * 3]
    for begin in range(0, automaton.num_nodes, _NODES_AT_ONCE):
        # Extend what is written from these nodes byte by byte: start node, current node, and node in the tokens' trie.
        origins = np.arange(begin, min(begin + _NODES_AT_ONCE, automaton.num_nodes))
        nodes, prefixes = origins, np.zeros(len(origins), dtype=np.int64)
        while len(nodes):
            if tokens.num_children(prefixes) < (first[nodes + 1] - first[nodes]).sum():
                # If nearly any byte is allowed, the tokens' trie has fewer children.
                prefixes, bytes_, parts = tokens.children(prefixes)
                is_way, targets = steps.behind(nodes[parts], bytes_)
                origins, prefixes, nodes = origins[parts[is_way]], prefixes[is_way], targets
            else:
                ways, parts = ranges(first, nodes)
                is_written, prefixes = tokens.steps.behind(prefixes[parts], automaton.bytes_[ways])
                origins, nodes = origins[parts[is_written]], automaton.targets[ways[is_written]]
            ids, parts = tokens.tokens(prefixes)
            found.append((origins[parts], ids, nodes[parts]))
            longer = tokens.goes_on(prefixes)
            origins, nodes, prefixes = origins[longer], nodes[longer], prefixes[longer]
    sources, ids, targets = (np.concatenate(each) for each in zip(*found, strict=True))
    return sources, ids, targets


class _Steps:
    """Ways between nodes, looked up by node and byte."""

    def __init__(self, sources: IntArray, bytes_: IntArray, targets: IntArray) -> None:
        keys = sources * 256 + bytes_
        order = np.argsort(keys)
        self.keys, self.targets = keys[order], targets[order]

    def behind(self, nodes: IntArray, bytes_: IntArray) -> tuple[npt.NDArray[np.bool_], IntArray]:
        """Return whether each node has a way by its byte, bool [n], and the targets of those ways."""
        keys = nodes * 256 + bytes_
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        found = self.keys[places] == keys
        return found, self.targets[places[found]]


def _reached(num_nodes: int, start: int, sources: IntArray, targets: IntArray) -> npt.NDArray[np.bool_]:
    """Return whether each node can be reached from the start, bool [nodes]."""
    order = np.argsort(sources, kind="stable")
    first = np.searchsorted(sources[order], np.arange(num_nodes + 1))
    behind = targets[order]
    reached = np.zeros(num_nodes, dtype=bool)
    reached[start] = True
    nodes = np.array([start], dtype=np.int64)
    while len(nodes):
        nodes, _ = ranges(first, nodes, behind)
        nodes = np.unique(nodes[~reached[nodes]])
        reached[nodes] = True
    return reached


def ranges(first: IntArray, rows: IntArray, items: IntArray | None = None) -> tuple[IntArray, IntArray]:
    """Return the items at `first[row]` up to `first[row + 1]`, for each of `rows`, and the index in `rows` of each.

    Without `items`, return their indices instead.
    """
    counts = first[rows + 1] - first[rows]
    parts = np.repeat(np.arange(len(rows)), counts)
    places = np.arange(len(parts)) + np.repeat(first[rows] - np.cumsum(counts) + counts, counts)
    return places if items is None else items[places], parts

"""Training examples: the prompts of inference, filled with the right answers (paper, section 4.4).

A layout decides what a value sees. The code that lays a prompt out for decoding lays it out here. So a model is trained
under the mask and at the positions under which it will decode.

    tree       one document, every value after its own key
    stacked    J documents, every value in its gap of K_max positions; a token of step k sees steps k' <= k
    ar         one document and the whole answer as one causal row: keys and structure are learned as well
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hpd_core.config import EngineConfig
from hpd_core.errors import ModelError
from hpd_core.layout import Branch, FilledLayout, Layout, fill_layout, tree_layout
from hpd_core.requests.prompt_builder import CategoryTokens, PromptBuilder
from hpd_core.text.template import render_answer_line
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.types import Attribute, CategorySchema

TrainedLayout = Literal["tree", "stacked", "ar"]
IGNORED = -100
"""Label of a token that is not learned."""


@dataclass(frozen=True, slots=True)
class LabelledDocument:
    """Document and its known answers.

    Attributes:
        document_ids: the document's tokens.
        answers: attribute name -> items (a single value: one item), or None if the value is known to be absent. An
            attribute that is not in it is not taught.
    """

    document_ids: Sequence[int]
    answers: Mapping[str, Sequence[str] | None]


@dataclass(frozen=True, slots=True)
class Example:
    """Filled prompt. `num_documents` is 1, or J if documents are stacked."""

    filled: FilledLayout
    num_prefix_tokens: int
    num_documents: int

    @property
    def num_own_tokens(self) -> int:
        """Number of tokens after the category's prefix."""
        return len(self.filled.token_ids) - self.num_prefix_tokens

    @property
    def num_targets(self) -> int:
        """Number of tokens that are learned."""
        return int((self.filled.labels != IGNORED).sum())


class ExampleBuilder:
    """Builder of the examples of one layout for one tokenizer."""

    def __init__(self, tokenizer: Any, config: EngineConfig, layout: TrainedLayout, max_positions: int | None) -> None:
        """Take `config` as the engine will have it: K_max and the prompt's texts. Its `layout` is ignored.

        Raises:
            ModelError: documents are to be read both ways in another layout than 'tree'.
        """
        if config.reads_both_ways and layout != "tree":
            raise ModelError(
                f"layout {layout!r} with engine.document_attention 'bidirectional': only 'tree' reads documents both "
                "ways; set it to 'causal'"
            )
        self._layout = layout
        used = config.autoregressive() if layout == "ar" else config.model_copy(update={"layout": layout})
        self._builder = PromptBuilder(tokenizer, used, max_positions)
        self._segments = SegmentTokenizer(tokenizer)
        self._max_value_tokens = config.max_value_tokens
        self._end_of_text: int | None = tokenizer.eos_token_id

    def value_ids(self, attribute: Attribute, items: Sequence[str] | None) -> list[int]:
        """Return the tokens of an answer, the closing one included."""
        return self._segments.encode_text([render_answer_line(attribute, items)])[0]

    def max_value_tokens(self, attribute: Attribute) -> int:
        """Return K_max of the attribute."""
        return attribute.max_value_tokens or self._max_value_tokens

    def build(self, schema: CategorySchema, documents: Sequence[LabelledDocument]) -> Example | None:
        """Return the example of one document, or of J stacked ones; None if the model has no positions for it.

        Raises:
            ValueError: several documents where the layout takes one, or nothing taught, or a value above K_max.
        """
        if len(documents) != 1 and self._layout != "stacked":
            raise ValueError(f"{len(documents)} documents for the layout {self._layout!r}, which takes one")
        if not any(name in document.answers for document in documents for name in _names(schema)):
            raise ValueError("no attribute is taught")
        tokens = self._builder.category_tokens(schema)
        build = {"tree": self._tree, "stacked": self._stacked, "ar": self._ar}[self._layout]
        layout, values, targets = build(tokens, schema, documents)
        if not self._builder.fits(layout):
            return None
        return Example(fill_layout(layout, values, targets), layout.num_prefix_tokens, len(documents))

    def _tree(
        self, tokens: CategoryTokens, schema: CategorySchema, documents: Sequence[LabelledDocument]
    ) -> tuple[Layout, list[list[int]], list[list[int]]]:
        # No branch sees another one, so those that teach nothing are left out.
        answers = documents[0].answers
        taught = [index for index, name in enumerate(_names(schema)) if name in answers]
        layout = self._builder.tree(tokens, documents[0].document_ids, taught)
        attributes = [schema.attributes[index] for index in taught]
        values = [self.value_ids(attribute, answers[attribute.name]) for attribute in attributes]
        return layout, values, values

    def _stacked(
        self, tokens: CategoryTokens, schema: CategorySchema, documents: Sequence[LabelledDocument]
    ) -> tuple[Layout, list[list[int]], list[list[int]]]:
        layout = self._builder.stack(tokens, [document.document_ids for document in documents])
        values = []
        targets = []
        for document in documents:
            for attribute in schema.attributes:
                # Other values see this one, so that something must stand there: null, as an engine might say.
                value = self.value_ids(attribute, document.answers.get(attribute.name))
                values.append(value)
                targets.append(value if attribute.name in document.answers else [IGNORED] * len(value))
        return layout, values, targets

    def _ar(
        self, tokens: CategoryTokens, schema: CategorySchema, documents: Sequence[LabelledDocument]
    ) -> tuple[Layout, list[list[int]], list[list[int]]]:
        answers = documents[0].answers
        value: list[int] = []
        target: list[int] = []
        for branch, attribute in zip(tokens.branches, schema.attributes, strict=True):
            ids = self.value_ids(attribute, answers.get(attribute.name))
            value += [*branch.tokens, *ids]
            target += [*branch.tokens, *(ids if attribute.name in answers else [IGNORED] * len(ids))]
        closing = self._segments.encode_trusted("}")
        closing += [self._end_of_text] if self._end_of_text is not None else []
        # The opening brace, the prompt's last token, is where the answer grows from.
        *suffix, brace = tokens.suffix
        branch = Branch([brace], len(value) + len(closing))
        layout = tree_layout(tokens.prefix, [*documents[0].document_ids, *suffix], [branch])
        return layout, [value + closing], [target + closing]


def _names(schema: CategorySchema) -> list[str]:
    return [attribute.name for attribute in schema.attributes]

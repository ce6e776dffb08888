"""Prompt of the question about a category: the paper's Figure 10, over a few of its products."""

from __future__ import annotations

from collections.abc import Sequence

from hpd_core.text.template import render_document
from pipelines.labelling.teacher_prompts import Message
from pipelines.proposing.products import ProposalProduct

_MAX_PRODUCTS = 12
_MAX_CHARACTERS = 1_500  # of a product

# The paper's words, Figure 10; <unit> and <values> are added.
_INSTRUCTION = """\
You are an expert at comparing products to determine if they are equivalent in terms of function, specification, form, \
design, material, quantity, quality, brand value.

Analyze the <product> elements below, and output a list of price-sensitive attributes that experienced customers and \
product category experts would consider when comparing these products to see if they are exact equivalents, very \
similar, or incompatible.

For each attribute write a brief description which lists 3-6 typical values as examples.
Make sure each attribute name is not more than 4 words.
Do not include attributes related to price.
For each attribute output the data type of its value as numerical or categorical.
For a numerical attribute output the unit of its value, and for a categorical one the values that these products have, \
separated by |.

Provide up to 16 attributes, including fine-grained ones.

Only output a list of XML <attribute> elements with numeric id (as element attribute), product attribute <name>, \
<description>, <datatype>, <unit> and <values>.

Products, all of the category {category}:

```
{products}
```"""

_REMINDER = """\
That answer cannot be used: it holds no <attribute> element with a <name>. Answer again, with a list of such elements \
and nothing else."""


def question(category: str, products: Sequence[ProposalProduct]) -> list[Message]:
    """Return the question about a category, as chat messages."""
    chosen = products[:: max(1, len(products) // _MAX_PRODUCTS)][:_MAX_PRODUCTS]
    texts = (render_document(product.fields)[:_MAX_CHARACTERS] for product in chosen)
    written = "\n".join(f"<product>\n{text}\n</product>" for text in texts)
    content = _INSTRUCTION.replace("{category}", category).replace("{products}", written)
    return [{"role": "user", "content": content}]


def asked_again(messages: list[Message], answer: str) -> list[Message]:
    """Return the question repeated after an unusable answer, as chat messages."""
    useless = {"role": "assistant", "content": answer[:_MAX_CHARACTERS] or "-"}
    return [*messages, useless, {"role": "user", "content": _REMINDER}]

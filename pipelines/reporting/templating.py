"""Pages and Markdown from templates, with every string of a catalog escaped.

A page is self-contained. Two defences protect the reader from a catalog's text. Every string is escaped on insertion,
and a Content-Security-Policy allows only the page's own script and style, by their hashes. No catalog string is ever
put into an attribute, a script or a style.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipelines.reporting import formats

_FORMATS = {
    name: getattr(formats, name)
    for name in ("usd", "hours", "number", "share", "rate", "probability", "size", "plain", "leaf")
}


@dataclass(frozen=True, slots=True)
class Templates:
    """The folder `templates` of a package.

    Attributes:
        filters, functions: extras for its templates, besides the formats.
    """

    package: str
    filters: Mapping[str, Any]
    functions: Mapping[str, Any]

    def page(self, name: str, context: Mapping[str, Any], *, style: str, script: str) -> str:
        """Render the page of a template, which inserts `policy`, `style` and `script`."""
        policy = (
            f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        )
        assets = {"style": Markup(style), "script": Markup(script), "policy": Markup(policy)}
        return self._environment(_finalize_html, autoescape=True).get_template(name).render({**context, **assets})

    def markdown(self, name: str, context: Mapping[str, Any]) -> str:
        """Render the Markdown of a template."""
        return self._environment(_finalize_markdown, autoescape=False).get_template(name).render(context)

    def asset(self, name: str) -> str:
        """Read a style sheet or script."""
        return resources.files(self.package).joinpath("templates", name).read_text(encoding="utf-8")

    def _environment(self, finalize: Any, *, autoescape: bool) -> Environment:
        environment = Environment(
            loader=PackageLoader(self.package),
            autoescape=autoescape,
            finalize=finalize,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {**_FORMATS, **self.filters}
        environment.globals |= self.functions
        return environment


def _finalize_html(value: Any) -> Any:
    return formats.show(value) if isinstance(value, str) else value


def _finalize_markdown(value: Any) -> Any:
    return formats.markdown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

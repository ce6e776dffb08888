"""Serves a model to clients of OpenAI's interface: a JSON schema and a text in, the filled-in JSON out.

    hpd serve --model smollm2
    hpd serve --model smollm2 --adapter adapters/smollm2-generalist --host 0.0.0.0 --port 8000
    hpd serve --model smollm2 --set engine.max_value_tokens=60 --max-open 1000

Requests of all clients are decoded in the same steps. SIGTERM or Ctrl-C ends it: what it has taken is answered first.
Exit code: 0 ended so, 1 the machine did not do, 2 usage (no such model, a port that is taken).
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

import typer

from pipelines.console.exit_codes import EXIT_CLEAN, open_socket, run_command
from pipelines.errors import UsageError
from pipelines.serving.gate import ServingLimits

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_DEFAULT = ServingLimits()


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def main(
    model: Annotated[str, typer.Option(help="hub id, folder, or an embedded model's name")] = "smollm2",
    adapter: Annotated[str | None, typer.Option(help="LoRA adapter for it: folder, fsspec URI or hub id")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="a key of the engine, as engine.dtype=float32; repeatable"),
    ] = None,
    host: Annotated[str, typer.Option(help="address to serve at; other machines reach 0.0.0.0")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port to serve at; 0: a free one")] = 8000,
    name: Annotated[str | None, typer.Option(help="what clients call the model; by default as --model")] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="HPD_API_KEY", show_envvar=True, help="key that requests have to bring; none: all may ask"),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds until a request has its answer or an error")] = (
        _DEFAULT.timeout_seconds
    ),
    max_open: Annotated[int, typer.Option(min=1, help="requests at a time, waiting ones too; more get a 429")] = (
        _DEFAULT.max_open_requests
    ),
) -> None:
    """Serves until it is told to end."""
    limits = ServingLimits(timeout_seconds=timeout, max_open_requests=max_open)

    def work() -> int:
        # Imported here: `--help` and wrong options answer at once, without torch.
        from hpd_core import Engine, ModelError
        from pipelines.config.loading import apply_override, parse_config
        from pipelines.serving.app import ServeConfig

        try:
            from pipelines.serving.app import make_server, serve
        except ImportError as error:
            raise UsageError(f"{error.name} is not installed: pip install fastapi uvicorn prometheus-client") from error
        document: dict[str, object] = {"model": model, "adapter": adapter}
        for override in overrides or []:
            apply_override(document, override)
        config = parse_config(ServeConfig, document, "--model, --adapter and --set")
        if api_key is not None and (not api_key.strip() or not api_key.isascii() or not api_key.isprintable()):
            raise UsageError("--api-key: a key of visible ASCII characters is needed; without the option all may ask")
        with open_socket(host, port) as sock:
            if api_key is None and not _is_here(host):
                typer.echo(f"Note: whoever reaches {host} may ask; --api-key asks for a key", err=True)
            try:
                engine = Engine.from_pretrained(config.model, config.engine, config.adapter)
            except ModelError as error:
                raise UsageError(str(error)) from error
            with engine:
                for note in engine.notes:
                    typer.echo(f"Note: {note}", err=True)
                server = make_server(engine, name or model, limits, api_key)
                serve(server, sock, lambda address: typer.echo(f"Serving {name or model} at {address}"))
        return EXIT_CLEAN

    run_command(work)


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

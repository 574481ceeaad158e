"""`workbench convert`: weights between diffusers' layout and that of a model's authors."""

from __future__ import annotations

import click

from workbench.cli.printing import say
from workbench.families import convert as convert_weights


@click.command()
@click.argument("source")
@click.argument("target")
@click.option(
    "--like",
    metavar="MODEL",
    help="The model of SOURCE; needed where SOURCE is no model itself, as a LoRA.",
)
def convert(source: str, target: str, like: str | None) -> None:
    """Write the model or LoRA SOURCE as TARGET in the other layout: diffusers' to the authors' own, or back.

    Which way to go is read from SOURCE: a file, a folder, or the name of a known model. TARGET must be new.
    """
    summary = convert_weights(source, target, like, lambda text: say(text, err=True))
    say(summary)

"""`version`: which program this is."""

from __future__ import annotations

from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

from pydantic import BaseModel
from rich.console import Console

from dispatcher.cli.options import Output, OutputOption
from dispatcher.cli.printing import emit


class VersionView(BaseModel):
    version: str


def version(output: OutputOption = Output.TABLE) -> None:
    """The version of this program."""
    try:
        found = installed_version("entrepot")
    except PackageNotFoundError:
        found = "not installed"
    view = VersionView(version=found)
    emit(view, None, output, partial(_page, view))


def _page(view: VersionView, out: Console, wide: bool) -> None:
    out.print(f"entrepot {view.version}")

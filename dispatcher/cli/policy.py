"""`policy ...`: what the author of a rule asks for, and what whoever rolls it out must see. A module a command."""

from __future__ import annotations

import typer

from dispatcher.cli import (
    policy_audit,
    policy_bundle,
    policy_diff,
    policy_explain,
    policy_facts,
    policy_lint,
    policy_shadow,
    policy_tests,
)


def build() -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Write residency rules: check, test, ask.")
    app.command("lint")(policy_lint.lint)
    app.command("test")(policy_tests.run_tests)
    app.command("facts")(policy_facts.facts)
    app.command("diff")(policy_diff.diff)
    app.command("explain")(policy_explain.explain)
    app.command("shadow")(policy_shadow.shadow)
    app.command("keygen")(policy_bundle.keygen)
    app.command("sign")(policy_bundle.sign)
    app.command("verify")(policy_bundle.verify)
    app.command("audit")(policy_audit.audit)
    return app

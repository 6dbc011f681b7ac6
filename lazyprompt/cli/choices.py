"""A click option type and a command group whose errors suggest the nearest name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lazyprompt.errors import did_you_mean

if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:  # click.Choice is not generic in click 8.1
    _Choice = click.Choice


class OneOf(_Choice):
    """A choice between names whose error suggests the nearest name."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if it is one of the names."""
        if value not in self.choices:
            self.fail(
                f"unknown value {value!r}{did_you_mean(value, self.choices)}; "
                f"expected one of {', '.join(self.choices)}",
                param,
                ctx,
            )
        return value


class CommandGroup(click.Group):
    """A command group whose error suggests the nearest command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, command and arguments for a call."""
        names = self.list_commands(ctx)
        if args[0] not in names:
            ctx.fail(f"unknown command {args[0]!r}{did_you_mean(args[0], names)}; expected one of {', '.join(names)}")
        return super().resolve_command(ctx, args)

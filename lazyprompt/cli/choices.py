"""A click option type and a command group whose error messages suggest the most similar name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lazyprompt.errors import did_you_mean

if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:  # click.Choice is not generic in click 8.1
    _Choice = click.Choice


class OneOf(_Choice):
    """An option type for a choice between names; its error message suggests the nearest name."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if it is a valid choice; otherwise, raise a usage error."""
        if value not in self.choices:
            self.fail(
                f"unknown value {value!r}{did_you_mean(value, self.choices)}; "
                f"expected one of {', '.join(self.choices)}",
                param,
                ctx,
            )
        return value


class CommandGroup(click.Group):
    """A command group; the error message for an unknown command suggests the nearest command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command's name, the command and its remaining arguments."""
        names = self.list_commands(ctx)
        if args[0] not in names:
            ctx.fail(f"unknown command {args[0]!r}{did_you_mean(args[0], names)}; expected one of {', '.join(names)}")
        return super().resolve_command(ctx, args)

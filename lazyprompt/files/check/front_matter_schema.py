"""The JSON Schema of front matters, for editors: ``prompty.schema.json`` in the directory above."""

from pathlib import Path


def schema_text() -> str:
    """Return the text of the schema: draft 7, which all editors read.

    It describes Prompty v2 and allows fields that it does not know, as the reader does.
    """
    return Path(__file__).parents[1].joinpath("prompty.schema.json").read_text(encoding="utf-8")

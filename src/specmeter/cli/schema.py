"""`specmeter schema`."""

from __future__ import annotations

import click


@click.command(name="schema")
@click.option("--example", is_flag=True, help="Print a complete example file instead.")
def command(example: bool) -> None:
    """Print the JSON Schema of experiment files, for editors and for reading.

    \b
    Examples:
      specmeter schema > experiment.schema.json
      specmeter schema --example > mine.yaml

    \b
    Editors with a YAML language server check and complete a file that starts with
      # yaml-language-server: $schema=experiment.schema.json
    """
    if example:
        from importlib import resources

        click.echo((resources.files("specmeter.experiments") / "demo.yaml").read_text(encoding="utf-8"), nl=False)
        return
    import json

    from specmeter.experiments.experiment import Experiment

    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Experiment.model_json_schema()}
    click.echo(json.dumps(schema, indent=2, ensure_ascii=False))

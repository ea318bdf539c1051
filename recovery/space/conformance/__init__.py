"""The suite that a space must pass: `python -m pytest -p recovery.space.conformance.plugin --pyargs recovery.space.conformance --space MODULE:FACTORY`."""

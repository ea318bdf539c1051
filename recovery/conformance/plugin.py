"""The pytest plugin of the suite. It has no options, and imports nothing of the project."""

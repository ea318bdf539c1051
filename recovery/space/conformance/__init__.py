"""The suite that a space must pass; recovery/README, "Another space", has the command that runs it."""

"""What the oracle takes from a ledger: the moves of a restore, but those that a loss of power may have undone."""

import json
from pathlib import Path

from chaos.oracle.ledger import read_moved


def write_ledger(directory: Path, *rounds: tuple[str, int]) -> str:
    """A ledger with one exit of the restore decided at seq 5 for each (boot id, moves)."""
    records = [
        {"op": "exit", "key": f"log/session/d5/{number}", "exit": {}, "boot_id": boot, "detail": {"displaced": moves}}
        for number, (boot, moves) in enumerate(rounds, 1)
    ]
    path = directory / "ledger"
    path.write_text("".join(f"{'0' * 32} {json.dumps(record)}\n" for record in records), "utf-8")
    return str(path)


def test_the_rounds_of_a_restore_are_added(tmp_path: Path) -> None:
    assert read_moved(write_ledger(tmp_path, ("one", 2), ("one", 1))) == {5: 3}


def test_rounds_before_a_restart_prove_no_move(tmp_path: Path) -> None:
    assert read_moved(write_ledger(tmp_path, ("one", 2), ("other", 1), ("other", 1))) == {5: 2}

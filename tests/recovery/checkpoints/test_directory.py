"""The directory store: its steps in their order, what killed writers leave, directories that are none, the command that runs its suite."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog import durable, steps
from eventlog.codec import content_id
from eventlog.errors import MisuseError
from eventlog.image import root_hash
from recovery.checkpoints.conformance.fixtures import FILES, OWNER, make_image, read, take
from recovery.checkpoints.conformance.subject import DEFAULT
from recovery.checkpoints.directory import SYNC_EACH, make_store, open_store
from recovery.checkpoints.errors import StoreMissingError
from recovery.checkpoints.port import check_contents
from recovery.checkpoints.vault import check_store_place

ROOT = Path(__file__).resolve().parents[3]


class Passing:
    """A hook that tells the names of the steps that this process passes."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def pass_step(self, full_name: str) -> None:
        self.tell(full_name.split(":")[1])


@pytest.mark.parametrize("count", [3, SYNC_EACH + 1], ids=["one by one", "many"])
def test_at_every_step_whatever_manifest_can_be_found_is_whole(tmp_path: Path, count: int) -> None:
    """The manifest gets its name last: a kill at any step leaves checkpoints that can be restored, or none."""
    store = make_store(str(tmp_path / "store"))
    files = {f"f{number}".encode(): b"content %d" % number for number in range(count)}
    seen: list[str] = []

    def look(name: str) -> None:
        seen.append(name)
        for manifest in store.list_manifests(OWNER):
            found = store.load(OWNER, manifest)
            check_contents(store, found, found.image)

    steps.install(Passing(look))
    try:
        take(store, files)
    finally:
        steps.install(None)
    renamed = max(at for at, name in enumerate(seen) if name == "checkpoint.content.rename.after")
    assert renamed < seen.index("checkpoint.manifest.rename.before")
    names = "checkpoint.names.syncfs.after" if count > SYNC_EACH else "checkpoint.names.sync.after"
    assert seen.index("checkpoint.manifest.rename.before") > max(at for at, name in enumerate(seen) if name == names)


def test_what_a_killed_writer_left_is_collected(tmp_path: Path) -> None:
    store = make_store(str(tmp_path / "store"))
    manifest = take(store)
    left = tmp_path / "store" / "incoming" / "0123456789abcdef"
    left.mkdir()
    (left / ("f" * 64)).write_bytes(b"half")
    (tmp_path / "store" / "manifests" / OWNER / f"{'e' * 64}.new-1").write_bytes(b"half")
    done = store.collect(OWNER, [manifest], dry_run=False)
    assert done.bytes == 8 and not done.manifests and not left.exists()
    assert store.load(OWNER, manifest).image == make_image(FILES)


def test_a_writer_that_fails_takes_its_own_away(tmp_path: Path) -> None:
    store = make_store(str(tmp_path / "store"))
    with pytest.raises(RuntimeError), store.writing() as writer:
        writer.put(content_id(b"x"), lambda: [b"x"])
        raise RuntimeError("something else")
    assert os.listdir(tmp_path / "store" / "incoming") == []


def test_a_store_is_opened_only_where_one_is(tmp_path: Path) -> None:
    with pytest.raises(StoreMissingError, match="never made anew"):
        open_store(str(tmp_path / "nothing"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    with pytest.raises(MisuseError, match="not empty"):
        make_store(str(tmp_path / "other"))
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "format").write_text("crashworthy checkpoint store 9\n")
    with pytest.raises(MisuseError, match="no checkpoint store that this version knows"):
        open_store(str(tmp_path / "newer"))


@pytest.mark.parametrize(("store", "work"), [("w/s", "w"), ("w", "w/s"), ("w", "w")])
def test_store_and_workspace_may_not_contain_each_other(tmp_path: Path, store: str, work: str) -> None:
    for path in (store, work):
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
    with pytest.raises(MisuseError, match="contain each other"):
        check_store_place(str(tmp_path / store), str(tmp_path / work))


def test_a_content_that_somebody_else_put_is_durable_by_name_before_a_checkpoint_relies_on_it(tmp_path: Path) -> None:
    """Its putter may have been killed between the rename and the directory's sync."""
    make_store(str(tmp_path / "store"))
    take(open_store(str(tmp_path / "store")), {b"a": b"x"})
    other = open_store(str(tmp_path / "store"))
    synced: list[str] = []
    steps.install(Passing(synced.append))
    try:
        image = make_image({b"b": b"x"})
        with other.writing() as writer:
            assert not writer.put(content_id(b"x"), lambda: [b"x"])
            writer.finish(OWNER, image, root_hash(image))
    finally:
        steps.install(None)
    assert synced.index("checkpoint.names.sync.after") < synced.index("checkpoint.manifest.rename.before")
    assert read(other, content_id(b"x")) == b"x"


class Synced:
    """An observer that keeps which paths were synced, with the steps, and which names were given."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    def begin(self, operation: durable.Operation) -> None:
        pass

    def end(self, operation: durable.Operation) -> None:
        if operation.kind == "sync":
            self.done.append(("sync", os.readlink(f"/proc/self/fd/{operation.descriptor}")))
        elif operation.kind == "rename":
            self.done.append((operation.step, os.fsdecode(operation.target)))


@pytest.fixture
def synced() -> Iterator[Synced]:
    found = Synced()
    durable.observe(found)
    yield found
    durable.observe(None)


def test_the_directories_that_a_killed_writer_made_are_durable_by_name_before_a_checkpoint_relies_on_them(
    tmp_path: Path, synced: Synced
) -> None:
    """Killed between the making of a directory and the sync of its name: without that sync the name of a manifest leads nowhere."""
    store = make_store(str(tmp_path / "store"))
    (tmp_path / "store" / "manifests" / OWNER).mkdir()
    Path(store.path_of(content_id(b"x"))).parent.mkdir()
    synced.done.clear()
    take(store, {b"a": b"x"})
    named = next(at for at, (what, _) in enumerate(synced.done) if what == "checkpoint.manifest")
    assert {path for what, path in synced.done[:named] if what == "sync"} >= {
        str(tmp_path / "store" / "manifests"), str(tmp_path / "store" / "contents")
    }  # fmt: skip
    synced.done.clear()
    take(store, {b"a": b"x", b"b": b"x"})
    assert ("sync", str(tmp_path / "store" / "manifests")) not in synced.done  # this handle knows it by now


def test_a_new_store_is_durable_by_name_with_the_directories_above_it(tmp_path: Path, synced: Synced) -> None:
    make_store(str(tmp_path / "above" / "it" / "store"))
    made = {str(tmp_path), str(tmp_path / "above"), str(tmp_path / "above" / "it"), str(tmp_path / "above" / "it" / "store")}
    assert {path for what, path in synced.done if what == "sync"} >= made


def test_a_store_whose_maker_may_have_been_killed_is_made_durable_by_whoever_begins_in_it(tmp_path: Path, synced: Synced) -> None:
    make_store(str(tmp_path / "store"))
    synced.done.clear()
    make_store(str(tmp_path / "store"))
    assert synced.done == [("sync", str(tmp_path / "store")), ("sync", str(tmp_path))]


def test_the_readme_gives_the_command_that_runs_the_suite(tmp_path: Path) -> None:
    readme = (ROOT / "recovery" / "README.md").read_text("utf-8")
    command = "-p recovery.checkpoints.conformance.plugin --pyargs recovery.checkpoints.conformance --checkpoints"
    assert command in readme
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *command.split(), DEFAULT, "-k", "comes_out"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr

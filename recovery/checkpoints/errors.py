"""What can be wrong with checkpoints. Typed, with what is lost."""

from eventlog.errors import CrashworthyError
from eventlog.show import show_path


class CheckpointDamagedError(CrashworthyError):
    """A checkpoint, or a content of it, is missing or is not what its name says (I9). `manifest` is its name (hex, "" where only a content
    is known), `path` the first path of the image that is lost with it (None: the manifest itself, and all paths with it)."""

    def __init__(self, store: str, manifest: str, path: bytes | None, what: str) -> None:
        what = what.partition("; run `eventlog verify")[0]  # said by the codec, which is the log's too: that command knows no store
        self.manifest = manifest
        self.path = path
        self.what = what
        if manifest:
            lost = "the whole image of it is lost" if path is None else f"{show_path(path)} of it is lost"
            what = f"checkpoint {manifest} is damaged: {what}; {lost}"
        super().__init__(f"{store}: {what}")


class CheckpointBusyError(CrashworthyError):
    """Somebody is writing checkpoints into the store."""

    exit_code = 1


class StoreMissingError(CrashworthyError):
    """There is no checkpoint store where one should be: it is never made anew by who only reads."""

"""What can be taken from a session behind its back, by the name that a plan gives it: `lose "root removed"`. Pure; `taking` does it."""

LOSSES = {
    "root removed": "the workspace directory is removed with all in it",
    "root emptied": "an empty directory stands where the workspace was",
    "root moved": "the workspace directory is moved away; nobody may touch it where it lies now",
    "root replaced": "the workspace directory is moved away, and another one with a file of somebody else stands there",
    "root copied": "the workspace directory is moved away, and a copy of it stands there, as a backup puts one back",
    "root unmounted": "the workspace, a file system of its own (scenario key `mount`), is unmounted: an empty directory is there",
    "boot": "the machine is restarted: every process of the session is dead, and drivers find another boot id",
    "space": "every process of the space is killed, spawner, shims, file worker and commands: the driver goes on and finds it so",
    "ledger removed": "the ledger file is gone",
    "ledger damaged": "a byte in the middle of the ledger is another one",
    "ledger exchanged": "the ledger is that of another space: sound, with another id",
    "log": "the log's files are put back as they were at an earlier step (`keep`)",
    "machine": "another machine has nothing but the log: no workspace, no space, no side directory, no registry of holders, a new boot id",
    "checkpoint": "a byte of the newest checkpoint's manifest is another one",
    "checkpoint content": "a byte of a content that the newest checkpoint alone has is another one",
    "files": "everything in the workspace is removed, the directory itself stays",
}

"""Workspace images: their values, their digests, their changes. Re-exports only; eventlog/README has the format byte for byte.

An `Image` is a mapping from path to `Entry`, with the root at `b""`. It is complete or does not exist: nothing here makes a partial one.
"""

from eventlog.image_diff import check_image, diff, fold_changes, fold_into, is_identity_change
from eventlog.image_hash import NO_CHANGES, changes_digest, decode_owner, encode_change, root_hash
from eventlog.image_tree import ImageTree
from eventlog.image_values import (
    Change,
    Entry,
    Image,
    Kind,
    Operation,
    check_entry,
    check_path,
    decode_xattrs,
    delete_change,
    encode_xattrs,
    name_of,
    parent_of,
    put_change,
    times_change,
)

__all__ = [
    "NO_CHANGES",
    "Change",
    "Entry",
    "Image",
    "ImageTree",
    "Kind",
    "Operation",
    "changes_digest",
    "check_entry",
    "check_image",
    "check_path",
    "decode_xattrs",
    "delete_change",
    "diff",
    "decode_owner",
    "encode_change",
    "encode_xattrs",
    "fold_changes",
    "fold_into",
    "is_identity_change",
    "name_of",
    "parent_of",
    "put_change",
    "root_hash",
    "times_change",
]

"""Deletion vectors: which rows of a split are deleted, in Delta's format.

A vector is a set of row numbers: a 64-bit Roaring bitmap in the portable format behind a magic
number. Small ones are in the log itself, as text (`storageType` "i", Z85); the others of a commit
share one file beside the table's splits (`storageType` "u"), each with its length and CRC-32. The
add action of a split has the descriptor. Files never change; a further deletion writes another one.

A vector that cannot be read, or that does not fit its split, is an error: passing it over would
bring deleted rows back.
"""

from __future__ import annotations

import array
import base64
import binascii
import struct
import threading
import uuid
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from indextables.errors import DamagedVectorError, ObjectNotFoundError
from indextables.storage import Store

RowNumbers = npt.NDArray[np.int64]

_MAGIC = struct.pack("<i", 1681511377)
_FORMAT = b"\x01"
_INLINE, _FILE = "i", "u"
_NAME = "deletion_vector_{}.bin"
MOST_INLINE = 1_024
"""Bytes of a vector that is kept in the log."""
_MOST_KEPT = 64 << 20

_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _TO_B85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """What an add action says about a vector: where it is and how many rows it names."""

    storage_type: str
    path_or_inline: str
    size: int
    cardinality: int
    offset: int | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any], *, path: str) -> DeletionVector:
        """The descriptor in the add action of the split at `path`."""
        try:
            vector = cls(
                body["storageType"], body["pathOrInlineDv"], body["sizeInBytes"],
                body["cardinality"], body.get("offset"),
            )  # fmt: skip
        except KeyError as error:
            raise DamagedVectorError(path, f"its descriptor has no {error}") from error
        counts = (vector.size, vector.cardinality, vector.offset or 0)
        if vector.storage_type not in (_INLINE, _FILE) or type(vector.path_or_inline) is not str:
            raise DamagedVectorError(path, f"its storage type is {vector.storage_type!r}")
        if any(type(count) is not int or count < 0 for count in counts):
            raise DamagedVectorError(path, "its descriptor has sizes that are not numbers")
        return vector

    def to_json(self) -> dict[str, Any]:
        """The descriptor as the log writes it."""
        body: dict[str, Any] = {
            "storageType": self.storage_type, "pathOrInlineDv": self.path_or_inline,
            "sizeInBytes": self.size, "cardinality": self.cardinality,
        }  # fmt: skip
        return body if self.offset is None else {**body, "offset": self.offset}

    @property
    def file(self) -> str | None:
        """The path of the vector's file in the table; None where the log holds the vector."""
        if self.storage_type == _INLINE:
            return None
        folder, name = self.path_or_inline[:-20], self.path_or_inline[-20:]
        try:
            identity = uuid.UUID(bytes=_from_z85(name))
        except ValueError as error:
            raise DamagedVectorError(self.path_or_inline, f"it is not a name ({error})") from error
        if folder and not folder.isalnum():
            raise DamagedVectorError(self.path_or_inline, "its folder is not letters and digits")
        return "/".join([*([folder] if folder else []), _NAME.format(identity)])


def is_vector_file(path: str) -> bool:
    """Whether an object of a table is a file of vectors."""
    name = path.rpartition("/")[2]
    return name.startswith("deletion_vector_") and name.endswith((".bin", ".bin.crc"))


def vector_files(descriptors: Iterable[Mapping[str, Any] | None]) -> set[str]:
    """The files that descriptors of add actions name."""
    files = (DeletionVector.from_json(body, path="a split").file for body in descriptors if body)
    return {path for path in files if path is not None}


# --- bytes -------------------------------------------------------------------------------------


def encoded(rows: RowNumbers) -> bytes:
    """Row numbers as the bytes of a vector."""
    from pyroaring import BitMap64

    bitmap = BitMap64(array.array("Q", np.asarray(rows, dtype=np.uint64).tobytes()))
    bitmap.run_optimize()
    return _MAGIC + bytes(bitmap.serialize())


def decoded(data: bytes, *, path: str) -> RowNumbers:
    """The row numbers of a vector, ascending."""
    from pyroaring import BitMap64

    if data[:4] != _MAGIC:
        raise DamagedVectorError(path, "it does not begin with the magic number of a vector")
    try:
        numbers = BitMap64.deserialize(data[4:]).to_array()
    except (ValueError, IndexError) as error:
        raise DamagedVectorError(path, str(error)) from error
    return np.frombuffer(numbers, dtype=np.uint64).astype(np.int64)


def _to_z85(data: bytes) -> str:
    padded = data + bytes(-len(data) % 4)
    return base64.b85encode(padded).translate(_TO_Z85).decode()


def _from_z85(text: str) -> bytes:
    encoded_text = text.encode()
    if len(encoded_text) % 5 or set(encoded_text) - set(_Z85):
        raise ValueError("it is not in the alphabet of Z85")
    return base64.b85decode(encoded_text.translate(_TO_B85))


# --- reading -----------------------------------------------------------------------------------

_kept: LRUCache[tuple[str, DeletionVector], RowNumbers] = LRUCache(_MOST_KEPT, lambda r: r.nbytes)
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class StoredVector:
    """A vector of the split at `path`, read when its rows are needed."""

    store: Store
    descriptor: DeletionVector
    path: str

    def rows(self, *, total: int) -> RowNumbers:
        """The deleted rows, ascending, of a split that has so many rows."""
        key = (self.store.identity, self.descriptor)
        with _lock:
            row_numbers = _kept.get(key)
        if row_numbers is None:
            row_numbers = self.read()
            with _lock:
                if row_numbers.nbytes <= _MOST_KEPT:
                    _kept[key] = row_numbers
        if len(row_numbers) and row_numbers[-1] >= total:
            raise DamagedVectorError(
                self.path, f"it names row {row_numbers[-1]:,}, and the split has {total:,} rows"
            )
        return row_numbers

    def read(self) -> RowNumbers:
        """The deleted rows as they are stored, checked."""
        descriptor = self.descriptor
        try:
            data = self._bytes()
        except ObjectNotFoundError as error:
            raise DamagedVectorError(self.path, f"its file is missing ({error})") from error
        except (ValueError, binascii.Error) as error:
            raise DamagedVectorError(self.path, str(error)) from error
        rows = decoded(data, path=self.path)
        if len(rows) != descriptor.cardinality:
            raise DamagedVectorError(
                self.path, f"it names {len(rows):,} rows, the log says {descriptor.cardinality:,}"
            )
        return rows

    def _bytes(self) -> bytes:
        descriptor = self.descriptor
        if descriptor.file is None:
            data = _from_z85(descriptor.path_or_inline)[: descriptor.size]
            if len(data) < descriptor.size:
                raise ValueError("it is shorter than the log says")
            return data
        start = descriptor.offset if descriptor.offset is not None else len(_FORMAT)
        end = start + 4 + descriptor.size + 4
        if self.store.head(descriptor.file).size < end:
            raise ValueError("its file is shorter than the log says")
        stored = bytes(self.store.get_range(descriptor.file, start, end))
        if len(stored) != descriptor.size + 8 or stored[:4] != struct.pack(">i", descriptor.size):
            raise ValueError("its file does not have its bytes at that place")
        data, checksum = stored[4:-4], stored[-4:]
        if zlib.crc32(data) != struct.unpack(">I", checksum)[0]:
            raise ValueError("its checksum is wrong")
        return data


# --- writing -----------------------------------------------------------------------------------


def inline_vector(rows: RowNumbers) -> DeletionVector:
    """A vector inside its descriptor, of any size; for one that is not stored."""
    data = encoded(rows)
    return DeletionVector(_INLINE, _to_z85(data), len(data), len(rows))


def store_vectors(store: Store, rows: Mapping[str, RowNumbers]) -> dict[str, DeletionVector]:
    """Vectors for splits by their paths: small ones inline, the others in one new file."""
    vectors: dict[str, DeletionVector] = {}
    content, identity = bytearray(_FORMAT), uuid.uuid4()
    name = _to_z85(identity.bytes)
    for path, numbers in rows.items():
        data, count = encoded(numbers), len(numbers)
        if len(data) <= MOST_INLINE:
            vectors[path] = inline_vector(numbers)
            continue
        vectors[path] = DeletionVector(_FILE, name, len(data), count, len(content))
        content += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    if len(content) > len(_FORMAT):
        store.put(_NAME.format(identity), bytes(content))
    return vectors

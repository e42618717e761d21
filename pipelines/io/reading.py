"""Files into blocks of documents: byte ranges and row groups, parsed in columns, without Python objects for lines."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics

from dpngram.pipelines.io.input_formats import InputFormat
from dpngram.pipelines.io.lines import ByteRange
from dpngram.pipelines.io.parsing import BadRecord
from dpngram.transforms.beam_workarounds import with_element_type
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.whole_files import write_whole

__all__ = ["BAD_RECORDS", "ReadDocuments", "match_files"]


BAD_RECORDS = r"bad-\d{6,}\.jsonl"  # what the files of a list of bad records are called


def match_files(patterns: list[str]) -> dict[str, int]:
    """The files that match the patterns, with their sizes; see `match_metadata`."""
    return {path: file.size_in_bytes for path, file in match_metadata(patterns).items()}


def match_metadata(patterns: list[str]) -> dict[str, FileMetadata]:
    """The files that match the patterns; each file once, under the first of its names.

    Privacy: reading a file twice would make two users of every line without a user id. So a file is known by its device
    and inode, whatever patterns, symbolic links or hard links lead to it; on other filesystems, which have no links, by
    its address. A *copy* is another file.
    """
    matched = FileSystems.match([_with_directory(pattern) for pattern in patterns])
    files = {file.path: file for found_by_one in matched for file in found_by_one.metadata_list}
    found: dict[object, str] = {}
    for path in sorted(files):
        found.setdefault(_identity(path), path)
    return {path: files[path] for path in found.values()}


def _identity(path: str) -> object:
    """What two names of one file have in common."""
    if FileSystems.get_scheme(path) is not None:
        return path
    real = os.path.realpath(path)
    try:
        status = os.stat(real)
    except OSError:
        return real  # gone since it was found: reading it says so
    return (status.st_dev, status.st_ino) if status.st_ino else real  # some filesystems do not number their files


def _with_directory(pattern: str) -> str:
    """`./posts-*.jsonl` for `posts-*.jsonl`: the same files, but Beam finds none without a directory (seen in 2.77)."""
    return f"./{pattern}" if re.match(r"[^/*?[]*[*?[]", pattern) else pattern


class ReadDocuments(beam.PTransform):
    """Root: file patterns -> DocumentBlock. Any Beam filesystem; gz, bz2 and zst are known by their names.

    Privacy: the blocks are the private data; counters and lists of bad records are for the operator.

    Args:
        patterns: of the files.
        input_format: what they hold.
        bad_records: a directory that gets a line for every record that cannot be used: reason, file, offset and length,
            never its content.
    """

    def __init__(self, patterns: list[str], input_format: InputFormat, bad_records: str | None = None) -> None:
        super().__init__()
        self._patterns, self._format, self._bad_records = patterns, input_format, bad_records

    def expand(self, pbegin: Any) -> beam.PCollection[DocumentBlock]:
        read = (
            pbegin
            | "Start" >> beam.Impulse()  # one element for all patterns: a file may match several
            | "Ranges" >> beam.FlatMap(_split_files, self._patterns, self._format)  # (number, range)
            | "Spread" >> beam.GroupByKey()  # over the workers
            | "Parse" >> beam.ParDo(_ParseDoFn(self._format, self._bad_records))
        )
        return with_element_type(read, DocumentBlock)


def _split_files(_start: bytes, patterns: list[str], input_format: InputFormat) -> Iterator[tuple[int, ByteRange]]:
    files = match_files(patterns)
    yield from enumerate(extent for path, size in files.items() for extent in input_format.ranges(path, size))


class _ParseDoFn(beam.DoFn):
    def __init__(self, input_format: InputFormat, bad_records: str | None) -> None:
        self._format, self._bad_records = input_format, bad_records
        self._records = Metrics.counter("dpngram", "records")

    def process(self, numbered: tuple[int, Iterable[ByteRange]]) -> Iterator[DocumentBlock]:
        number, extents = numbered
        for extent in extents:
            records, bad = 0, []
            for parsed in self._format.read(extent):
                records += parsed.records
                bad += parsed.bad
                yield from parsed.all_blocks()
            self._records.inc(records)
            for record in bad:
                Metrics.counter("dpngram", f"bad_{record.reason}").inc(record.rows)
            if bad and self._bad_records is not None:
                _write_bad_records(self._bad_records, number, extent.path, bad)


def _write_bad_records(directory: str, number: int, path: str, bad: list[BadRecord]) -> None:
    """Writes one file for each part, named by its number: if a part is read twice, the same file is written again."""
    lines = [
        json.dumps(
            {"reason": record.reason, "file": path, "offset": record.offset, "length": record.length}
            | ({"rows": record.rows} if record.rows > 1 else {})
        )
        for record in bad
    ]
    target = FileSystems.join(directory, f"bad-{number:06d}.jsonl")
    write_whole(target, ("\n".join(lines) + "\n").encode(), private=True)

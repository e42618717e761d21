"""--deny FILE: n-grams that hold a listed token or phrase are taken out of what is written.

Privacy: this is post-processing. The release was made before, with its noise and thresholds, and every decision here is
a function of the release and of the list. So it costs nothing, and protects nobody either: what is listed was released
as far as the guarantee is concerned. The list must not be made by looking at the private data; otherwise what is
missing from the output would tell about them. The list itself is not published, only how long it is.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import ParameterError
from dpngram.transforms import GramTable
from dpngram.transforms.tokenizers import make_tokenizer
from dpngram.transforms.whole_files import read_whole

__all__ = ["NOTHING_DENIED", "DenyList", "read_deny_list"]

_MOST_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class DenyList:
    """Phrases that nothing may hold.

    Args:
        phrases: each as its tokens, at least one.
    """

    phrases: tuple[tuple[str, ...], ...] = ()

    def filter(self, table: GramTable) -> GramTable:
        """The table without the n-grams that hold a phrase: its tokens, one after another. Its figures stay."""
        if not self.phrases or not len(table):
            return table
        rows = {word: row for row, word in enumerate(table.vocabulary.to_pylist())}
        known = {
            tuple(rows[token] for token in phrase)
            for phrase in self.phrases
            if len(phrase) <= table.n and all(token in rows for token in phrase)
        }
        keep = np.ones(len(table), bool)
        for length in sorted({len(phrase) for phrase in known}):
            listed = {phrase for phrase in known if len(phrase) == length}
            begins = np.array(sorted({phrase[0] for phrase in listed}), table.tokens.dtype)
            for start in range(table.n - length + 1):
                candidates = np.flatnonzero(keep & np.isin(table.tokens[:, start], begins))
                found = map(tuple, table.tokens[candidates, start : start + length].tolist())
                keep[candidates] = [tokens not in listed for tokens in found]
        return dataclasses.replace(table, tokens=table.tokens[keep], weight=table.weight[keep])

    def holds(self, grams: Iterable[Sequence[str]]) -> bool:
        """Whether one of these n-grams holds a phrase."""
        listed = set(self.phrases)
        lengths = {len(phrase) for phrase in listed}
        return any(
            tuple(gram[start : start + length]) in listed
            for gram in grams
            for length in lengths
            for start in range(len(gram) - length + 1)
        )

    def in_words(self) -> str:
        """What the manifest says."""
        return (
            f"n-grams that hold one of {len(self.phrases)} listed tokens or phrases were left out after the release "
            "was made. This is post-processing: the guarantee is the same."
        )


NOTHING_DENIED = DenyList()


def read_deny_list(path: str | None, tokenizer: str, *, tokens_given: bool = False, offline: bool = False) -> DenyList:
    """The list in a file, cut into tokens as the texts are; raises ParameterError for lines that could match nothing.

    Args:
        path: of the file; None: nothing is denied.
        tokenizer: the name of the tokenizer of the texts.
        tokens_given: the input has lists of tokens; those of a line are then between blanks.
        offline: a file that is not on this machine is not read, since the job is only translated.
    """
    if path is None or (offline and FileSystems.get_scheme(path) is not None):
        return NOTHING_DENIED
    try:
        data = read_whole(path)
        text = data.decode()
    except Exception as error:
        kind = type(error).__name__
        raise ParameterError(f"deny must be a file of UTF-8 text that can be read, got {path!r} ({kind}).") from None
    if len(data) > _MOST_BYTES:
        raise ParameterError(f"deny must be a file of at most {_MOST_BYTES >> 20} MiB, got {path!r}.")
    numbered = [
        (number, line) for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1) if line.strip()
    ]
    column = make_tokenizer("whitespace" if tokens_given else tokenizer).tokenize(
        pa.array([line.encode() for _, line in numbered], pa.large_binary())
    )
    words = column.vocabulary.cast(pa.large_string()).to_pylist()
    tokens = [words[token] for token in column.ids.tolist()]
    bounds = column.bounds.tolist()
    phrases = {
        int(record): tuple(tokens[start:end])
        for record, start, end in zip(column.record.tolist(), bounds[:-1], bounds[1:], strict=True)
    }
    for place, (number, _) in enumerate(numbered):
        if not phrases.get(place):
            raise ParameterError(f"deny must have a token on each line, but line {number} of {path!r} has none.")
    return DenyList(tuple(sorted(set(phrases.values()))))

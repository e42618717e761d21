"""The door: documents of a host's graph, or columns of a reader, become posts in shards."""

import dataclasses
import numbers
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.utils.windowed_value import WindowedValue

from dpngram.transforms.columns import Block, binary_array, register_block, split_binary
from dpngram.transforms.keys import Randomness
from dpngram.transforms.levels import Array
from dpngram.transforms.posts import PostBlock, PostDigests, make_posts, split_posts
from dpngram.transforms.tokenizers import TokenColumn, Tokenizer, encode_tokens

__all__ = ["DocumentBlock", "PreparePosts", "block_posts", "collect_documents", "read_fields"]

_BATCH_DOCUMENTS = 20_000
_BATCH_CHARACTERS = 8_000_000


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentBlock(Block):
    """Documents as columns. With `token_bounds` the strings are tokens, and the bounds cut them into documents."""

    user_offsets: Array  # int64; empty if every document is a user of its own
    user_bytes: Array
    offsets: Array  # int64
    data: Array  # uint8: UTF-8
    token_bounds: Array  # int64; empty if the strings are texts

    @classmethod
    def from_texts(cls, users: pa.Array | None, texts: pa.Array) -> "DocumentBlock":
        """From Arrow columns of strings without nulls."""
        user_offsets, user_bytes = split_binary(users) if users is not None else (np.zeros(0, np.int64), _NO_BYTES)
        offsets, data = split_binary(texts)
        return cls(
            user_offsets=user_offsets,
            user_bytes=user_bytes,
            offsets=offsets,
            data=data,
            token_bounds=np.zeros(0, np.int64),
        )

    @classmethod
    def from_tokens(cls, users: pa.Array | None, tokens: pa.Array, bounds: Array) -> "DocumentBlock":
        """From Arrow columns: all tokens of all documents in a row, and where each document begins."""
        return dataclasses.replace(cls.from_texts(users, tokens), token_bounds=np.asarray(bounds, np.int64))

    @property
    def users(self) -> pa.Array | None:
        return binary_array(self.user_offsets, self.user_bytes) if len(self.user_offsets) else None


_NO_BYTES = np.zeros(0, np.uint8)


def collect_documents(
    documents: Iterable[Any], *, user_field: str, text_field: str, user_per_document: bool
) -> tuple[list[DocumentBlock], int]:
    """Blocks from Python documents, and how many could not be used.

    A document is (user, text), (user, tokens), or a row or mapping with the named fields; with `user_per_document` it
    is the text or the tokens alone. One without a user, or with text that is no text, is counted and left out: it must
    neither fail the run nor join a shared anonymous user.
    """
    texts: list[tuple[bytes, list[bytes]]] = []
    sequences: list[tuple[bytes, list[bytes]]] = []
    bad = 0
    for document in documents:
        try:
            user, text = read_fields(document, user_field, text_field, user_per_document)
            if isinstance(text, str):
                texts.append((user, [text.encode()]))
            else:
                sequences.append((user, [_token_bytes(token) for token in text]))
        except (TypeError, ValueError, AttributeError, LookupError):
            bad += 1
    blocks = []
    for kept, tokenised in ((texts, False), (sequences, True)):
        if kept:
            users = None if user_per_document else pa.array([user for user, _ in kept], pa.large_binary())
            strings = pa.array([string for _, strings in kept for string in strings], pa.large_binary())
            if tokenised:
                bounds = np.cumsum([0, *(len(tokens) for _, tokens in kept)])
                blocks.append(DocumentBlock.from_tokens(users, strings, bounds))
            else:
                blocks.append(DocumentBlock.from_texts(users, strings))
    return blocks, bad


def block_posts(
    block: DocumentBlock, tokenizer: Tokenizer, digests: PostDigests
) -> tuple[PostBlock | None, TokenColumn]:
    """The posts of a block, or None if it has no token at all; and the tokens, which tell what was left out."""
    if len(block.token_bounds):
        column = encode_tokens(block.offsets, block.data, block.token_bounds)
    else:
        column = tokenizer.tokenize(binary_array(block.offsets, block.data))
    return make_posts(block.users, column, digests) if len(column.record) else None, column


def read_fields(document: Any, user_field: str, text_field: str, user_per_document: bool) -> tuple[bytes, Any]:
    user: Any = ""
    if user_per_document:
        text = document
    elif isinstance(document, dict):
        user, text = document[user_field], document[text_field]
    elif isinstance(document, tuple) and not hasattr(document, "_fields"):
        user, text = document
    else:
        user, text = getattr(document, user_field), getattr(document, text_field)
    if not isinstance(user, bool) and isinstance(user, numbers.Integral):
        user = str(int(user))
    if not isinstance(user, (str, bytes)) or (not user and not user_per_document):
        raise TypeError
    if not isinstance(text, (str, list) if user_per_document else (str, list, tuple)):
        raise TypeError  # no sets, whose order differs from worker to worker; no pairs taken for tokens
    return user.encode() if isinstance(user, str) else user, text


def _token_bytes(token: Any) -> bytes:
    if not isinstance(token, str):
        raise TypeError
    return token.encode()


class PreparePosts(beam.PTransform):
    """Documents or DocumentBlocks -> (shard, PostBlock): tokenised, digested, cut by user.

    Privacy: nothing is released; documents that cannot be used are counted, not shown. Windowing: kept.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        randomness: Randomness,
        shards: int,
        *,
        user_field: str,
        text_field: str,
        user_per_document: bool,
    ) -> None:
        super().__init__()
        self._tokenizer, self._randomness, self._shards = tokenizer, randomness, shards
        self._collect = {
            "user_field": user_field,
            "text_field": text_field,
            "user_per_document": user_per_document,
        }

    def expand(self, documents: beam.PCollection[Any]) -> beam.PCollection[tuple[int, PostBlock]]:
        return (
            documents
            | "Batch" >> beam.ParDo(_BatchDoFn(self._collect))  # blocks of documents
            | "Tokenize" >> beam.ParDo(_TokenizeDoFn(self._tokenizer, self._randomness, self._shards))
        )


class _BatchDoFn(beam.DoFn):
    """Gathers a bundle's documents into blocks, window by window; what is a block already passes."""

    def __init__(self, collect: dict[str, Any]) -> None:
        self._collect = collect
        self._bad = Metrics.counter("dpngram", "bad_documents")

    def start_bundle(self) -> None:
        self._waiting: dict[Any, list[Any]] = {}
        self._size = 0

    def process(self, document: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[DocumentBlock]:
        if isinstance(document, DocumentBlock):
            yield document
            return
        self._waiting.setdefault(window, []).append(document)
        text = document[-1] if isinstance(document, tuple) and document else document
        self._size += len(text) if isinstance(text, (str, list, tuple)) else 64
        if len(self._waiting[window]) >= _BATCH_DOCUMENTS or self._size > _BATCH_CHARACTERS:
            for waiting in list(self._waiting):
                yield from self._flush(waiting)
            self._size = 0

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for window in list(self._waiting):
            yield from self._flush(window)

    def _flush(self, window: Any) -> Iterator[WindowedValue]:
        blocks, bad = collect_documents(self._waiting.pop(window), **self._collect)
        self._bad.inc(bad)
        for block in blocks:
            yield WindowedValue(block, window.max_timestamp(), (window,))


class _TokenizeDoFn(beam.DoFn):
    def __init__(self, tokenizer: Tokenizer, randomness: Randomness, shards: int) -> None:
        self._tokenizer, self._randomness, self._shards = tokenizer, randomness, shards
        self._over = Metrics.counter("dpngram", "bad_over_cap")
        self._failed = Metrics.counter("dpngram", "bad_tokenizer_failed")

    def setup(self) -> None:
        self._digests = PostDigests.of(self._randomness.open())

    def process(self, block: DocumentBlock) -> Iterator[tuple[int, PostBlock]]:
        posts, column = block_posts(block, self._tokenizer, self._digests)
        self._over.inc(column.over)
        self._failed.inc(column.failed)
        if posts is not None:
            yield from split_posts(posts, self._shards)

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

from dpngram.transforms.blocks.columns import binary_array, split_binary
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.blocks.posts import PostBlock, narrow, split_posts
from dpngram.transforms.randomness.noise_key import KeySource, Randomness
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.tokenizers.base import TokenColumn, Tokenizer, encode_tokens

__all__ = ["PostDigests", "PreparePosts", "block_posts", "collect_documents", "make_posts", "read_fields"]


_BATCH_DOCUMENTS = 20_000
_BATCH_CHARACTERS = 8_000_000


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


@dataclasses.dataclass(frozen=True)
class PostDigests:
    """The keyed functions that name users, tokens and posts before anything else is known of the content."""

    user: Prf
    token: Prf
    post: Prf
    key_check: int

    @classmethod
    def of(cls, source: KeySource) -> "PostDigests":
        return cls(source.digest("user"), source.digest("token"), source.digest("post"), source.check)


def make_posts(users: pa.Array | None, column: TokenColumn, digests: PostDigests) -> PostBlock:
    """A block from tokenised records. Without `users` every record is a user of its own.

    Such users have no id; their tokens stand in for it, and `group_users` tells equal ones apart by number.
    Nothing may depend on where in which file a record lies, or a permutation of the input would draw other noise.
    """
    offsets, data = split_binary(column.vocabulary)
    tokens = digests.token.strings(offsets, data)
    sequence = digests.post.sequences(np.take(tokens, column.ids, axis=0), column.bounds)
    if users is None:
        user, sequence = sequence, sequence[:0]
    else:
        encoded = users.dictionary_encode()
        distinct = digests.user.strings(*split_binary(encoded.dictionary))
        user = distinct[encoded.indices.to_numpy(zero_copy_only=False)[column.record]]
    return PostBlock(
        user=user,
        sequence=sequence,
        lengths=np.diff(column.bounds).astype(np.int32),
        ids=column.ids,
        token_lengths=narrow(np.diff(offsets)),
        token_bytes=data,
        key_check=np.uint64(digests.key_check),
    )


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

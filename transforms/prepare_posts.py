"""PreparePosts: documents of a host's graph, or columns of a reader, become posts in shards."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.utils.windowed_value import WindowedValue

from dpngram.accounting import ParameterError
from dpngram.accounting.parameters import check_integer
from dpngram.transforms.blocks.columns import binary_array, split_binary
from dpngram.transforms.blocks.documents import DocumentBlock, join_documents
from dpngram.transforms.blocks.posts import PostBlock, narrow, split_posts
from dpngram.transforms.document_form import DocumentForm, check_form, collect_documents
from dpngram.transforms.document_types import check_documents
from dpngram.transforms.keyed_dofn import KeyedDoFn
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.noise_key import KeySource, Randomness
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.tokenizers import Splitter, Tokenizer, make_tokenizer
from dpngram.transforms.tokenizers.base import TokenColumn, encode_tokens

__all__ = ["PostDigests", "PreparePosts", "block_posts", "choose_tokenizer", "make_posts"]

_BATCH_DOCUMENTS = 20_000
_BATCH_CHARACTERS = 8_000_000
_SMALL_BLOCK = 2_000  # documents: fewer are worth joining


class PreparePosts(beam.PTransform):
    """Documents or DocumentBlocks -> (shard, PostBlock): tokenised, digested, cut by user.

    Privacy: nothing is released; documents that cannot be used are counted, not shown. Windowing: kept.

    Args:
        tokenizer: a `Tokenizer`, or the name or function of one, see `make_tokenizer`.
        randomness: where the key is; users and tokens are named by keyed digests.
        form: where the user and the text are in a document.
        shards: into how many blocks the users are cut. Does not change the result.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | Splitter | str,
        randomness: Randomness,
        *,
        form: DocumentForm = DocumentForm(),
        shards: int = 32,
    ) -> None:
        super().__init__()
        self._tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else make_tokenizer(tokenizer)
        self._randomness, self._form = randomness, check_form(form)
        self._shards = check_integer("shards", shards, 1, 1 << 20)

    def expand(self, documents: beam.PCollection[Any]) -> beam.PCollection[tuple[int, PostBlock]]:
        check_documents(documents, self._form)
        return (
            documents
            | "Batch" >> beam.ParDo(_BatchDoFn(self._form))  # DocumentBlock
            | "Tokenize" >> beam.ParDo(_TokenizeDoFn(self._tokenizer, self._randomness, self._shards))
        )


def choose_tokenizer(name: str | Splitter, sentences: bool, form: DocumentForm) -> Tokenizer:
    """The tokenizer of that name, or of that function, on whole texts or on sentences."""
    if sentences and form.user_per_document:
        raise ParameterError("sentences must be off when every document is a user: a sentence would become one.")
    return make_tokenizer(name, sentences)


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
    """A block from tokenised records. Without `users` every record is a separate user.

    Such users have no id; their tokens stand in for it, and `group_users` tells equal ones apart by number.
    Nothing may depend on the file or the place of a record, or a permutation of the input would draw other noise.
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
        key_check=digests.key_check,
    )


def block_posts(
    block: DocumentBlock, tokenizer: Tokenizer, digests: PostDigests
) -> tuple[PostBlock | None, TokenColumn]:
    """The posts of a block, or None if it has neither a token nor a bad record; and the tokens, which tell what was
    left out.
    """
    if len(block.token_bounds):
        column = encode_tokens(block.offsets, block.data, block.token_bounds)
    elif len(block.offsets) > 1:
        column = tokenizer.tokenize(binary_array(block.offsets, block.data))
    else:
        column = encode_tokens(block.offsets, block.data, np.zeros(1, np.int64))
    posts = make_posts(block.users, column, digests) if len(column.record) else None
    if block.bad_users is None and not block.unnamed_bad:
        return posts, column
    if posts is None:
        posts = make_posts(pa.array([], pa.large_binary()), column, digests)
    bad = posts.bad if block.bad_users is None else digests.user.strings(*split_binary(block.bad_users))
    return dataclasses.replace(posts, bad=bad, unnamed_bad=block.unnamed_bad), column


class _BatchDoFn(beam.DoFn):
    """Gathers a bundle's documents into blocks, window by window. Blocks pass, small ones together."""

    def __init__(self, form: DocumentForm) -> None:
        self._form = form
        self._bad = Metrics.counter("dpngram", "bad_documents")

    def start_bundle(self) -> None:
        self._waiting: dict[Any, list[Any]] = {}
        self._small: dict[Any, list[DocumentBlock]] = {}
        self._size = 0

    def process(self, document: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[DocumentBlock]:
        if isinstance(document, DocumentBlock):
            if len(document.times):
                raise TypeError(Message.TIMES_IN_BLOCK.format())
            if document.rows >= _SMALL_BLOCK or document.nbytes > _BATCH_CHARACTERS // 8:
                yield document
            else:
                self._small.setdefault(window, []).append(document)
                self._size += document.nbytes
        else:
            self._waiting.setdefault(window, []).append(document)
            text = document[-1] if isinstance(document, tuple) and document else document
            self._size += len(text) if isinstance(text, (str, list, tuple)) else 64
        if len(self._waiting.get(window, ())) >= _BATCH_DOCUMENTS or self._size > _BATCH_CHARACTERS:
            yield from self.finish_bundle()
            self._size = 0

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for window in list(self._waiting):
            yield from self._flush(window)
        for window in list(self._small):
            for block in join_documents(self._small.pop(window)):
                yield WindowedValue(block, window.max_timestamp(), (window,))

    def _flush(self, window: Any) -> Iterator[WindowedValue]:
        blocks, bad = collect_documents(self._waiting.pop(window), self._form)
        self._bad.inc(bad)
        for block in blocks:
            yield WindowedValue(block, window.max_timestamp(), (window,))


class _TokenizeDoFn(KeyedDoFn):
    def __init__(self, tokenizer: Tokenizer, randomness: Randomness, shards: int) -> None:
        super().__init__(randomness)
        self._tokenizer, self._shards = tokenizer, shards
        self._over = Metrics.counter("dpngram", "bad_over_cap")
        self._failed = Metrics.counter("dpngram", "bad_tokenizer_failed")

    def setup(self) -> None:
        super().setup()
        self._digests = PostDigests.of(self._source)

    def process(self, block: DocumentBlock) -> Iterator[tuple[int, PostBlock]]:
        posts, column = block_posts(block, self._tokenizer, self._digests)
        self._over.inc(column.over)
        self._failed.inc(column.failed)
        if posts is not None:
            yield from split_posts(posts, self._shards)

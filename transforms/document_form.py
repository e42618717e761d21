"""Documents of a host's graph: where the user and the text are in them."""

import dataclasses
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from dpngram.accounting import ParameterError
from dpngram.transforms.blocks.documents import DocumentBlock

__all__ = ["UNUSABLE", "DocumentForm", "check_form", "collect_documents", "plain_text"]

# What `DocumentForm.read` raises for a document that cannot be used.
UNUSABLE = (TypeError, ValueError, AttributeError, LookupError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentForm:
    """How to read one document.

    Args:
        user_field, text_field: names of the fields, for documents that are rows or mappings.
        user_per_document: documents have no user; each is protected by itself.
    """

    user_field: str = "user"
    text_field: str = "text"
    user_per_document: bool = False

    def read(self, document: Any) -> tuple[bytes, Any]:
        """The user, and a text or a list of tokens.

        A document is (user, text), (user, tokens), or a row or mapping with the named fields; with `user_per_document`
        it is the text or the tokens alone. What cannot be used raises one of UNUSABLE, without a message.
        """
        user: Any = b""
        if self.user_per_document:
            text = document
        elif isinstance(document, dict):
            user, text = document[self.user_field], document[self.text_field]
        elif isinstance(document, tuple) and not hasattr(document, "_fields"):
            user, text = document
        else:
            user, text = getattr(document, self.user_field), getattr(document, self.text_field)
        if not self.user_per_document:
            user = _user_bytes(user)
        if not isinstance(text, (str, list) if self.user_per_document else (str, list, tuple)):
            raise TypeError  # no sets, whose order differs from worker to worker; no pairs taken for tokens
        return user, text

    def read_user(self, document: Any) -> bytes:
        """The user of a document that cannot be used otherwise; raises one of UNUSABLE if not even that can be used."""
        if self.user_per_document:
            raise TypeError
        if isinstance(document, dict):
            return _user_bytes(document[self.user_field])
        if isinstance(document, tuple) and not hasattr(document, "_fields"):
            user, _ = document
            return _user_bytes(user)
        return _user_bytes(getattr(document, self.user_field))


def _user_bytes(user: Any) -> bytes:
    if not isinstance(user, bool) and isinstance(user, numbers.Integral):
        user = str(int(user))
    if not isinstance(user, (str, bytes)) or not user:
        raise TypeError
    return user.encode() if isinstance(user, str) else user


def plain_text(text: Any) -> str | list[str]:
    """A text or a sequence of tokens as plain strings, which any coder takes; otherwise one of UNUSABLE is raised.

    Half of a surrogate pair is not text, and has no bytes in UTF-8.
    """
    if isinstance(text, str):
        return text.encode().decode()
    return [_token_bytes(token).decode() for token in text]


def check_form(form: DocumentForm) -> DocumentForm:
    """The form, or an error: read with anything else, every document would count as one that cannot be used."""
    if not isinstance(form, DocumentForm):
        raise ParameterError(f"form must be a DocumentForm, got {type(form).__name__}.")
    return form


def collect_documents(documents: Iterable[Any], form: DocumentForm) -> tuple[list[DocumentBlock], int]:
    """Blocks from Python documents, and how many could not be used.

    A document without a user, or whose text is not a text, is counted and left out: it must neither fail the run nor
    join a shared anonymous user. If there are such documents, the last block tells whose they were.
    """
    texts: list[tuple[bytes, list[bytes]]] = []
    sequences: list[tuple[bytes, list[bytes]]] = []
    bad_users: list[bytes] = []
    unnamed = 0
    for document in documents:
        try:
            user, text = form.read(document)
            if isinstance(text, str):
                texts.append((user, [text.encode()]))
            else:
                sequences.append((user, [_token_bytes(token) for token in text]))
        except UNUSABLE:
            try:
                bad_users.append(form.read_user(document))
            except UNUSABLE:
                unnamed += 1
    blocks = []
    for kept, tokenised in ((texts, False), (sequences, True)):
        if kept:
            users = None if form.user_per_document else pa.array([user for user, _ in kept], pa.large_binary())
            strings = pa.array([string for _, strings in kept for string in strings], pa.large_binary())
            if tokenised:
                bounds = np.cumsum([0, *(len(tokens) for _, tokens in kept)])
                blocks.append(DocumentBlock.from_tokens(users, strings, bounds))
            else:
                blocks.append(DocumentBlock.from_texts(users, strings))
    if bad_users or unnamed:
        blocks.append(DocumentBlock.from_bad_records(bad_users, unnamed))
    return blocks, len(bad_users) + unnamed


def _token_bytes(token: Any) -> bytes:
    if not isinstance(token, str):
        raise TypeError
    return token.encode()

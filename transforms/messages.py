"""What a worker may say: one table of messages, for the code that raises them and for whoever reads a failed run.

Two kinds of errors are kept apart. What is found while a graph is built is a `ParameterError` in free words: it names
what somebody typed, and nothing has been read yet. What is found on a worker is a message of this table.

Privacy: the failure of a worker reaches the launcher as one text, in which our words cannot be told from those of
another library's exception, and those may quote the data. So nothing of that text is shown. A message of this table is
recognised in it and written again from the template: numbers are taken over, `{key}` and `{kind}` are not (a reader
puts in what it knows itself). A message must therefore never have a field with a text of the data.
"""

import enum
import re
import string

__all__ = ["Message"]

_NUMBER = r"\d[\d.,e+\-]{0,20}"
_TEXTS = {"key": r"[^\n]+?", "kind": r"\w+"}  # all other fields are numbers


class Message(enum.Enum):
    """A code, and what it says. Fields: `{key}` names the noise key, `{kind}` an exception; others are numbers."""

    KEY_NOT_SET = "noise_key: the environment variable {key} is not set on this worker."
    KEY_UNREADABLE = "noise_key: {key} cannot be read on this worker ({kind})."
    KEY_MALFORMED = "noise_key: {key} must hold 32 bytes or 64 hexadecimal digits, got {size} bytes."
    SECRET_UNREADABLE = "noise_key: secret {key} cannot be read ({kind})."
    SECRETS_NEED_PACKAGE = "noise_key: gcp-secret needs the package google-cloud-secret-manager on the workers."
    KEY_REUSED = (
        "noise_key: {key} was already used for this release label with other data, parameters or version; take a new "
        "key, or a new --release label (a new release spends epsilon and delta again)."
    )
    KEY_OPEN_TO_OTHERS = (
        "noise_key: {key} can be read or changed by others than its owner on this worker; run chmod 600 on the file."
    )
    KEY_RECORD_UNREADABLE = (
        "noise_key: the record of what {key} was used for cannot be read or kept on this worker ({kind}), so nothing "
        "tells whether it may be used."
    )
    KEY_RECORD_NOWHERE = (
        "noise_key: what {key} is used for must be remembered, and no file can be written, neither beside the key nor "
        "in the state directory of this machine (DPNGRAM_STATE); name a directory with --key_records."
    )
    STREAM_STARTED = (
        "noise_key: a stream was started with {key} and this release label before, and its state alone knows how many "
        "windows each user was in; --start continued if the engine restores that state, --start replayed if a Kafka "
        "topic still has all its messages, --start again for another release, whose epsilon and delta are added."
    )
    STREAM_SHARDS = (
        "shards: a stream was started with {key} and this release label before, with another number of --shards, by "
        "which its state knows in how many windows each user was; give that number, or a new --release label, which is "
        "another release."
    )
    STREAM_SETTINGS = (
        "start: a stream was started with {key} and this release label before, with other settings, other windows or "
        "another user field, so what it has counted and spent does not fit; give the same, or a new --release label, "
        "which is another release."
    )
    STREAM_DIFFERS = (
        "start: a stream was started with {key} and this release label before, with another topic, other first "
        "messages, fields, windows or settings, so it cannot be read once more as the same release; --start again is "
        "another, whose epsilon and delta are added."
    )
    VOCABULARY_MISSING = (
        "policy plus: a round for a public vocabulary has no list of words, so every token would be a cell. Give its "
        "context with_vocabulary."
    )
    KEYS_DIFFER = "noise_key: workers hold different keys; was the variable or secret changed meanwhile?"
    OTHER_CHECKPOINTS = (
        "noise_key: the checkpoints of this output were made with another key, or from other data; --overwrite starts "
        "anew."
    )
    CHECKPOINTS_NOT_SHARED = (
        "checkpoints must be in a directory that this machine shares with all workers: it has not those of the job "
        "that has ended, and the next job goes on from them."
    )
    WINDOW_RELEASED_BEFORE = "noise_key: a window of the output has a release already, with other noise or data."
    TOO_MANY_BAD_RECORDS = (
        "max_bad_fraction must be at least the share of users with bad records (by a noisy count), got {allowed:g}; "
        "--bad_records DIR lists them, and in a graph of your own look at user_field, text_field and the counter "
        "bad_documents. Nothing was released."
    )
    RECURSIVE_AVRO_SCHEMA = "input must have an Avro schema that is not recursive."
    NO_USERS = "documents must have users, unless user_per_document is set: then every document is a user."
    TIMES_IN_BLOCK = (
        "documents with times of their own need windows, users and bound_windows: only there are they read."
    )
    KAFKA_TOPIC_UNKNOWN = (
        "kafka_topic must be a topic that the brokers of kafka_servers know, whose configuration they show, and for "
        "which they answer in time."
    )
    KAFKA_CREATE_TIME = (
        "kafka_topic must have message.timestamp.type=LogAppendTime: with CreateTime whoever writes a message also "
        "says when it arrived, and could make the messages of others late."
    )
    KAFKA_COMPACTED = (
        "kafka_topic must have cleanup.policy=delete: a compacted topic loses messages without a trace, and read once "
        "more it is another."
    )
    KAFKA_MESSAGES_GONE = "kafka_topic has deleted messages that this stream has not read; a rest would be incomplete."
    KAFKA_OUTPUT_FAILED = (
        "kafka_output must be a topic of kafka_servers that takes a record for each window, manifest and rows "
        "({kind}); its max.message.bytes may have to be larger."
    )
    TOKENIZER_NOT_IMPORTED = "tokenizer must be a module:function that every worker can import ({kind})."
    TOKENIZER_NEEDS_PACKAGE = (
        "tokenizer huggingface needs the package tokenizers on every worker: pip install 'dpngram[hf]'."
    )
    TOKENIZER_UNREADABLE = "tokenizer huggingface must be a file that every worker can read ({kind})."
    TOKENIZERS_DIFFER = "tokenizer huggingface must be the same file on every worker."
    STRING_TOO_LONG = "a text or token of 4 GiB or more cannot be used; leave it out of the input."
    SHARD_TOO_LARGE = "a shard of users holds 2^31 tokens or more; use more shards."
    LEVEL_TOO_LARGE = (
        "level {n} would hold {grams} grams; at most {most} are supported: use a smaller max_n, epsilon or eta."
    )
    SIGMA_TOO_LARGE = "sigma must be below 2^25 for exact sums, got {sigma:g}: the budget is too small."
    SURVEY_MISSING = (
        "policy plus: a block of users has no survey of its level, so nothing says what it has to pay. Chain the "
        "rounds in order."
    )
    BUDGET_UNKNOWN = (
        "policy plus: these users did not come through the levels before; their budget is unknown. Chain the levels "
        "in order."
    )
    GRAM_NOT_VALID = "a gram is not in V_k: users must go through the ValidityFilter of their level, in order."
    USERS_NOT_HANDED_ON = "a policy that changes its users must say so: changes_users is False."
    ZERO_CELLS_DIFFER = "workers drew different zero cells; run on machines of one kind."
    PARTS_DIFFER = "workers went on from different rounds before; run on machines of one kind."
    PIECES_MISSING = "pieces of a level are missing, or are of different levels: the runner lost some of them."
    OTHER_BLOCK_FORMAT = (
        "not a dpngram block, or one of another format version; all workers need the same version of dpngram."
    )
    DAMAGED_BLOCK = "a damaged dpngram block ({kind})."
    SCRATCH_FULL = "scratch: the disk is full; --scratch DIR names a directory on a larger one."
    SCRATCH_UNUSABLE = "scratch: blocks cannot be written to disk or read from it ({kind})."
    SCRATCH_DAMAGED = "scratch: blocks on disk are not what was written there; is the disk sound?"
    SCRATCH_CLOSED = "scratch: a block is on the disk of another run or process."
    BIG_ENDIAN = "dpngram runs on little-endian machines only."

    def format(self, **fields: object) -> str:
        """The sentence. Fields are numbers, but for `key` and `kind`."""
        return self.value.format(**fields)

    @property
    def numbers(self) -> list[str]:
        """The names of the fields that are numbers."""
        return [name for _, name, _, _ in _FORMATTER.parse(self.value) if name is not None and name not in _TEXTS]

    def find(self, text: str) -> "re.Match[str] | None":
        """The last place in a text that says this; groups are named like the fields, without `key`."""
        pattern = ""
        for literal, name, _, _ in _FORMATTER.parse(self.value):
            pattern += re.escape(literal)
            if name == "key":
                pattern += _TEXTS[name]
            elif name is not None:
                pattern += f"(?P<{name}>{_TEXTS.get(name, _NUMBER)})"
        return max(re.finditer(pattern, text), key=lambda found: found.start(), default=None)

    def repeat(self, found: "re.Match[str]", key: str, kind: str) -> str:
        """The sentence again, with the numbers that were `found` and with words that the caller knows."""
        plain = re.sub(r"\{(\w+):[^}]*\}", r"{\1}", self.value)  # the numbers have their form already
        return plain.format(**{name: found[name] for name in self.numbers}, key=key, kind=kind)


_FORMATTER = string.Formatter()

"""Keyed functions against slow, separate computations."""

import hashlib
import hmac

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpngram.transforms.randomness.prf import Prf, derive_key

KEY = bytes(range(32))


def aes(block):
    encryptor = Cipher(algorithms.AES256(KEY), modes.ECB()).encryptor()
    return encryptor.update(block)


def cbc_mac(text):
    message = len(text).to_bytes(4, "little") + text
    message += b"\0" * (-len(message) % 16)
    state = bytes(16)
    for at in range(0, len(message), 16):
        state = aes(bytes(a ^ b for a, b in zip(state, message[at : at + 16], strict=True)))
    return state


def test_words_are_aes_blocks():
    out = Prf(KEY).blocks(np.array([1, 2**63], np.uint64), np.array([7, 8], np.uint64))
    expected = [aes(a.to_bytes(8, "little") + b.to_bytes(8, "little")) for a, b in [(1, 7), (2**63, 8)]]
    assert [row.tobytes() for row in out] == expected


def test_strings_are_a_mac_of_length_and_bytes():
    random = np.random.default_rng(0)
    texts = [b"", b"a", b"a\0", *(random.bytes(n) for n in range(1, 70)), random.bytes(5000)]
    offsets = np.cumsum([0, *map(len, texts)])
    out = Prf(KEY).strings(offsets, np.frombuffer(b"".join(texts), np.uint8))
    assert [row.tobytes() for row in out] == [cbc_mac(text) for text in texts]
    assert len({row.tobytes() for row in out}) == len(texts)


def test_no_strings():
    assert Prf(KEY).strings(np.zeros(1, np.int64), np.zeros(0, np.uint8)).shape == (0, 2)


def test_sequences_depend_on_order_and_length_but_not_on_neighbours():
    prf = Prf(KEY)
    items = prf.blocks(np.arange(6, dtype=np.uint64), 0)
    runs = [[0, 1, 2], [2, 1, 0], [0, 1], [0, 1, 2, 2], [0], [0, 1, 2]]
    flat = np.concatenate([items[run] for run in runs])
    out = prf.sequences(flat, np.cumsum([0, *map(len, runs)]))
    alone = [prf.sequences(items[run], np.array([0, len(run)]))[0] for run in runs]
    assert (out == np.array(alone)).all()
    assert len({row.tobytes() for row in out}) == 5


def test_derived_keys_do_not_confuse_their_names():
    names = [("a", "bc"), ("ab", "c"), ("abc",), ("a", "b", "c"), (1, 23), (12, 3)]
    assert len({derive_key(KEY, *name) for name in names}) == len(names)
    expected = hmac.new(KEY, (1).to_bytes(8, "little") + b"x", hashlib.sha256).digest()
    assert derive_key(KEY, "x") == expected


def test_long_strings_have_the_same_digest():
    """One chain of AES blocks, however it is computed: here by the definition."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    random = np.random.default_rng(1)
    strings = [random.bytes(size) for size in (0, 5, 12, 13, 4108, 4109, 4110, 5000, (1 << 20) + 12, 3 << 20, 77)]
    data = np.frombuffer(b"".join(strings), np.uint8)
    offsets = np.cumsum([0, *map(len, strings)])
    encrypt = Cipher(algorithms.AES256(b"k" * 32), modes.ECB()).encryptor().update
    for string, digest in zip(strings, Prf(b"k" * 32).strings(offsets, data), strict=True):
        message = len(string).to_bytes(4, "little") + string
        message += bytes(max(16 - len(message), 0)) + bytes(-len(message) % 16 if len(message) > 16 else 0)
        state = bytes(16)
        for at in range(0, len(message), 16):
            state = encrypt(bytes(a ^ b for a, b in zip(state, message[at : at + 16], strict=True)))
        assert digest.tobytes() == state

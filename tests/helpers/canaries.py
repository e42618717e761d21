"""500 strings that no release may have, input files that hold them in every place, and a search that finds them."""

import base64
import hashlib
import json
import re

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from helpers.runs import small_corpus

from dpngram.pipelines.io.encoding import OUTPUT_FORMATS

MARK = "zqcanary"  # every canary begins with it, and nothing else has it: where it is not, none of them is
CANARIES = [f"{MARK}{i:03d}{hashlib.sha256(b'%d' % i).hexdigest()[:8]}" for i in range(500)]
# 240 users are enough for common words under this budget, and one user is not for any: even odds take 29.
BUDGET = ["--epsilon", "4", "--delta", "1e-6", "--max_n", "2", "--max_contributions", "12", "--eta", "0.1"]
FORMATS = ("jsonl", "csv", "tsv", "parquet", "avro", "text")


def encodings(secret):
    """{name: bytes}: how a text or a key may look in files, logs and messages."""
    text = secret.encode() if isinstance(secret, str) else secret
    found = {
        "plain": text,
        "reversed": text[::-1],
        "hex": text.hex().encode(),
        "decimal": b" ".join(b"%d" % byte for byte in text),
        "url": b"".join(b"%%%02x" % byte for byte in text),
        "json": b"".join(b"\\u%04x" % byte for byte in text),
        "octal": b"".join(b"\\%o" % byte for byte in text),
        "escaped": b"".join(b"\\x%02x" % byte for byte in text),
        "utf16": b"".join(bytes([byte, 0]) for byte in text),
        "utf16-be": b"".join(bytes([0, byte]) for byte in text),
        "repr": repr(text).encode()[2:-1],
    }
    for shift in range(3):  # what stands before decides how base64 cuts; the ends depend on what is around
        coded = base64.b64encode(b"\0" * shift + text)
        found[f"base64+{shift}"] = coded[-(-8 * shift // 6) : (8 * (shift + len(text))) // 6]
        found[f"base64url+{shift}"] = found[f"base64+{shift}"].translate(bytes.maketrans(b"+/", b"-_"))
    return found


def traces(data, secret=MARK):
    """The encodings in which a secret is in these bytes, whatever the case of letters."""
    if isinstance(data, str):
        data = data.encode(errors="surrogateescape")
    lower = data.lower()
    listed = re.sub(rb"[^0-9]+", b" ", data)  # a list of bytes as numbers, however it is laid out
    return [
        name
        for name, coded in encodings(secret).items()
        if coded in data or (name != "decimal" and coded.lower() in lower) or (name == "decimal" and coded in listed)
    ]


def search(directory, *secrets, leave_out=()):
    """{path: encodings} of all files under a directory, by content and by name, that hold a secret."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path in leave_out:
            continue
        data = str(path.relative_to(directory)).encode() + b"\n"
        if path.is_file():
            data += path.read_bytes()
            if path.name.startswith("ngrams-") and path.suffix in (".parquet", ".avro"):  # packed
                data += repr(OUTPUT_FORMATS[path.suffix[1:]].decode(path.read_bytes(), 1)).encode()
        if names := [name for secret in secrets or (MARK,) for name in traces(data, secret)]:
            found[str(path)] = names
    return found


def canary_rows():
    """Users who have enough in common for a release, and 400 canaries with one user each; the others are broken."""
    rows = small_corpus(240)
    for i, canary in enumerate(CANARIES[:400]):
        if i % 4 == 0:
            rows.append({"user": f"user_per_document{i}", "text": canary})
        elif i % 4 == 1:
            rows.append({"user": canary, "text": "w0 w1"})
        elif i % 4 == 2:
            rows.append({"user": f"among{i}", "text": f"w0 {canary} w1 {canary}é w0"})
        else:
            rows += [{"user": f"loud{i}", "text": f"{canary} {canary}"}] * 5
    return rows


def broken_lines():
    """A hundred canaries in lines of JSON that cannot be used."""
    forms = [
        b'{"user": "%s", "text": 5}',
        b'{"user": ["%s"], "text": "%s"}',
        b'{"%s": "%s"}',
        b"%s",
        b'{"user": "a", "text": "%s',
        b'{"user": "a", "user": "%s", "text": "%s"}',
        b'{"user": "%s", "text": "\xff%s"}',
        b'{"user": "%s", "text": "\\ud800%s"}',
        b'"%s"',
        b'{"user": "%s", "text": null}',
        b'{"user": "%s", "text": "x", "time": %s}',
        b'{"user": "ParameterError: user must %s", "text": ["NoiseKeyError: noise_key: %s"]}',
    ]
    for i, canary in enumerate(CANARIES[400:]):
        form = forms[i % len(forms)]
        yield form % ((canary.encode(),) * form.count(b"%s")) + b"\n"


def write_input(directory, name):
    """Files of this format with all canaries; the pattern that matches them."""
    directory.mkdir()
    rows = canary_rows()
    broken = CANARIES[400:]
    good, bad = directory / f"good.{name}", directory / f"bad.{name}"
    if name == "jsonl":
        good.write_text("".join(json.dumps(row) + "\n" for row in rows))
        bad.write_bytes(b"".join(broken_lines()))
        (directory / f"cut.{name}.gz").write_bytes(b"\x1f\x8b\x08\x00" + broken[0].encode())
    elif name in ("csv", "tsv"):
        comma = "," if name == "csv" else "\t"
        lines = [f"user{comma}text", *(f"{row['user']}{comma}{row['text']}" for row in rows)]
        good.write_text("\n".join(lines) + "\n")
        lines = [f"user{comma}text", *(comma.join([canary] * (1 + i % 4)) for i, canary in enumerate(broken))]
        bad.write_bytes("\n".join(lines).encode() + b"\n%s\xff" % broken[0].encode())
        (directory / f"quote.{name}").write_text(f'user{comma}text\n"{broken[1]}{comma}{broken[2]}\n')
        (directory / f"header.{name}").write_text(f"{broken[3]}{comma}text\n{broken[4]}{comma}{broken[5]}\n")
    elif name == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), good)
        pq.write_table(pa.table({"user": broken, "text": [[canary] for canary in broken]}), bad)
        pq.write_table(pa.table({broken[0]: broken, "text": broken}), directory / f"names.{name}")
        (directory / f"junk.{name}").write_bytes(b"PAR1" + broken[1].encode() + b"PAR1")
    elif name == "avro":
        for path, kind, records in ((good, "string", rows), (bad, ["null", "string"], [{"user": c} for c in broken])):
            fields = [{"name": "user", "type": "string"}, {"name": "text", "type": kind}]
            schema = {"type": "record", "name": "Post", "fields": fields}
            with path.open("wb") as file:
                fastavro.writer(file, schema, records)
        (directory / f"junk.{name}").write_bytes(b"Obj\x01" + broken[1].encode())
    else:
        lines = dict.fromkeys((row["user"], row["text"]) for row in rows)  # a line is a user: none may repeat
        good.write_text("".join(f"{text}\n" for _, text in lines))
        bad.write_bytes(
            b"".join(canary.encode() + (b"\0\n" if i % 2 else b"\xff\n") for i, canary in enumerate(broken))
        )
    return str(directory / "*")

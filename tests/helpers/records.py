"""What was read of a file: users, and the reasons of bad records."""

import io

import fastavro

from dpngram.pipelines.io.reading import InputFormat


def users_of(parts):
    return sorted(user.decode() for part in parts for block in part.blocks for user in block.users.to_pylist())


def read(path, name, **fields):
    input_format = InputFormat(name=name, **fields)
    return [
        part for extent in input_format.ranges(str(path), path.stat().st_size) for part in input_format.read(extent)
    ]


def reasons_of(parts):
    return sorted(record.reason for part in parts for record in part.bad)


def avro(rows):
    fields = [{"name": "user", "type": "string"}, {"name": "text", "type": "string"}]
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema({"type": "record", "name": "r", "fields": fields}), rows)
    return sink.getvalue()

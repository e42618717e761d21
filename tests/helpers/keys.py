"""Noise keys in tests."""


def write_key(path, key):
    """A key file as the program accepts it: closed to others than its owner."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(key)
    return path

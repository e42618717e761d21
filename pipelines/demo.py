"""`dpngram demo`: the whole thing on a small corpus that it makes itself."""

import json
import os
import tempfile
from collections.abc import Sequence

import numpy as np

from dpngram.pipelines import extract
from dpngram.pipelines.launch.flags import Flag, Kind, OneLineParser, print_error

__all__ = ["run", "write_messages"]

_USERS = 30_000
_TOP = 6
_OPENERS = (
    "thank you very much for the update",
    "happy birthday to you",
    "see you tomorrow at the office",
    "let me know what you think",
    "sorry for the late reply",
    "i will call you back in five minutes",
    "are you free for lunch this week",
    "the meeting is moved to monday morning",
    "please find the report attached",
    "have a great weekend",
    "looking forward to hearing from you",
    "can you send me the slides again",
    "congratulations on the new job",
    "i am running a bit late",
    "what time does the train arrive",
    "good luck with the exam",
)
_NOUNS = ("report", "budget", "garden", "train", "lunch", "meeting", "weather", "movie", "recipe", "ticket", "project")
_VERBS = ("finished", "missed", "loved", "booked", "fixed", "cancelled", "forgot", "enjoyed", "moved", "checked")
_NAMES = ("alex", "sam", "maria", "chen", "fatima", "john", "olga", "pedro", "aiko", "lars", "nadia", "omar")


def write_messages(path: str, users: int, seed: int = 0) -> None:
    """Short messages: common phrases, ordinary sentences, and in each user's text something only that user has."""
    random = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(2, len(_OPENERS) + 2)
    popularity /= popularity.sum()
    with open(path, "w", encoding="utf-8") as file:
        for user in range(users):
            secret = f"my phone number is {random.integers(10**8, 10**9)} and my code is {random.integers(10**5)}"
            posts = [secret]
            for _ in range(1 + min(int(random.pareto(1.5)), 20)):
                words = [random.choice(part) for part in (_NAMES, _VERBS, _NOUNS)]
                posts.append(f"{random.choice(_OPENERS, p=popularity)} {words[0]}")
                posts.append(f"{words[0]} {words[1]} the {words[2]}")
            for post in posts:
                file.write(json.dumps({"user": f"user{user}", "text": post}) + "\n")


def run(argv: Sequence[str]) -> int:
    parser = OneLineParser(prog="dpngram demo", description="Extract n-grams from a small generated corpus.")
    parser.add_flags(
        [Flag("output", "directory for corpus and release (default: a temporary one)", Kind.PATH, metavar="DIR")]
    )
    flags = parser.parse_args(argv)
    if flags.output is None:
        with tempfile.TemporaryDirectory(prefix="dpngram-demo-") as directory:
            return _demonstrate(parser.prog, directory)
    return _demonstrate(parser.prog, flags.output)


def _demonstrate(program: str, directory: str) -> int:
    corpus, release = os.path.join(directory, "corpus.jsonl"), os.path.join(directory, "release")
    try:
        os.makedirs(directory, exist_ok=True)
        write_messages(corpus, _USERS)
    except OSError as error:
        return print_error(program, f"output cannot be written: {error.strerror} ({directory!r}).", status=1)
    command = ["--input", corpus, "--output", release, "--epsilon", "2", "--delta", "1e-6", "--max_n", "6"]
    command += ["--max_contributions", "40"]
    print(f"{_USERS:,} users wrote short messages; each also wrote down a phone number that is theirs alone.\n")
    print(f"  dpngram extract {' '.join(command)}\n", flush=True)
    status = extract.run(command)
    if status:
        return status
    with open(os.path.join(release, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    print(manifest["guarantee"], end="\n\n")
    private = 0
    for level in manifest["levels"]:
        with open(os.path.join(release, level["file"]), encoding="utf-8") as file:
            grams = sorted(map(json.loads, file), key=lambda gram: -gram["weight"])
        private += sum(any(token.isdigit() for token in gram["tokens"]) for gram in grams)
        top = ", ".join(" ".join(gram["tokens"]) for gram in grams[:_TOP])
        print(f"{level['released']:5,} {level['n']}-grams: {top}{', ...' if len(grams) > _TOP else ''}")
    print(f"\nReleased {manifest['released']:,} n-grams; {private} of them hold anybody's number.")
    return 0

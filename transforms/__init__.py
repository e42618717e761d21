"""PTransforms, and the pure array functions under them. Knows a plan, never a budget.

`ExtractNgrams` is the whole algorithm. The other transforms are its parts, in the order in which data flows through
them; examples/parts.py uses them one by one.
"""

import dpngram.transforms.quiet_beam  # noqa: F401  (first, because the modules below import Beam)
from dpngram.transforms.add_spurious_grams import AddSpuriousGrams
from dpngram.transforms.bind_release import BindRelease, make_randomness
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.blocks.grams import GramTable, Ngram
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.clip_and_weight import ClipAndWeight
from dpngram.transforms.context import ReleaseContext
from dpngram.transforms.decode_grams import DecodeGrams
from dpngram.transforms.document_form import DocumentForm
from dpngram.transforms.extract import ExtractLevel, ExtractLevels, ExtractNgrams, ExtractRound
from dpngram.transforms.group_users import GroupUsers
from dpngram.transforms.limit_windows import LimitWindowsPerUser
from dpngram.transforms.noisy_threshold import NoisyThreshold
from dpngram.transforms.policies import RoundPolicy, make_rounds
from dpngram.transforms.prepare_posts import PreparePosts
from dpngram.transforms.randomness.noise_key import NoiseKeyError, Randomness
from dpngram.transforms.sum_cells import SumCells
from dpngram.transforms.validity_filter import ValidityFilter
from dpngram.transforms.vocabulary import VocabularyLevel

__all__ = [
    "AddSpuriousGrams",
    "BindRelease",
    "ClipAndWeight",
    "DecodeGrams",
    "DocumentBlock",
    "DocumentForm",
    "ExtractLevel",
    "ExtractLevels",
    "ExtractNgrams",
    "ExtractRound",
    "GramTable",
    "GroupUsers",
    "Level",
    "LimitWindowsPerUser",
    "Ngram",
    "NoiseKeyError",
    "NoisyThreshold",
    "PreparePosts",
    "Randomness",
    "ReleaseContext",
    "RoundPolicy",
    "SumCells",
    "ValidityFilter",
    "VocabularyLevel",
    "make_randomness",
    "make_rounds",
]

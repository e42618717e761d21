"""PTransforms, and the pure array functions under them. Knows a plan, never a budget."""

from dpngram.transforms.contribution import ClipAndWeight
from dpngram.transforms.documents import DocumentBlock
from dpngram.transforms.extract import ExtractLevel, ExtractLevels, ExtractNgrams
from dpngram.transforms.released import GramTable, Ngram
from dpngram.transforms.spurious import AddSpuriousGrams
from dpngram.transforms.threshold import NoisyThreshold
from dpngram.transforms.validity import ValidityFilter

__all__ = [
    "AddSpuriousGrams",
    "ClipAndWeight",
    "DocumentBlock",
    "ExtractLevel",
    "ExtractLevels",
    "ExtractNgrams",
    "GramTable",
    "Ngram",
    "NoisyThreshold",
    "ValidityFilter",
]

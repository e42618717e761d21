"""PTransforms, and the pure array functions under them. Knows a plan, never a budget."""

from dpngram.transforms.add_spurious_grams import AddSpuriousGrams
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.blocks.grams import GramTable, Ngram
from dpngram.transforms.clip_and_weight import ClipAndWeight
from dpngram.transforms.extract import ExtractLevel, ExtractLevels, ExtractNgrams
from dpngram.transforms.noisy_threshold import NoisyThreshold
from dpngram.transforms.validity_filter import ValidityFilter

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

"""All seeded mutants. `named` are those that the list of requirements asks for by name; the others are our own."""

from mutants.of_gate import GATE
from mutants.of_ledger import LEDGER
from mutants.of_plans import PLANS
from mutants.of_plus import PLUS
from mutants.of_programs import PROGRAMS
from mutants.of_randomness import RANDOMNESS
from mutants.of_releases import RELEASES
from mutants.of_streams import STREAMS
from mutants.of_users import USERS

__all__ = ["MUTANTS", "NAMED"]

MUTANTS = (*PLANS, *USERS, *PLUS, *RANDOMNESS, *RELEASES, *PROGRAMS, *STREAMS, *GATE, *LEDGER)

# In the order of the requirement.
NAMED = (
    "no_deduplication",
    "no_clipping",
    "sigma_for_the_wrong_t",
    "delta_not_halved",
    "rho_1_one_sigma_too_low",
    "noise_drawn_again_on_retry",
    "same_key_on_changed_data",
    "two_panes_released",
    "pruning_with_an_unnoised_set",
    "spurious_grams_left_out",
    "nearest_instead_of_downward_rounding",
    "budget_not_charged",
    "two_rounds_share_their_noise",
    "tokenizer_left_out_of_the_key",
    "spurious_grams_after_the_real_ones",
    "manifest_for_a_window_without_a_release",
    "exact_weight_in_the_output",
)

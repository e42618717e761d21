"""`dpngram plan`: what a budget buys, before any data is touched."""

import json
from collections.abc import Sequence

from dpngram.accounting import ParameterError, guarantee_in_words, plan_document
from dpngram.accounting.explain import conclude_plan, explain_plan, tabulate_plan
from dpngram.pipelines.launch.flags import OneLineParser, budget_flags, plan_from_flags


def run(argv: Sequence[str]) -> int:
    parser = OneLineParser(prog="dpngram plan", description="Show what a privacy budget buys.")
    parser.add_flags(budget_flags(), "budget")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the plan as JSON")
    form.add_argument("--explain", action="store_true", help="print the plan in plain English")
    flags = parser.parse_args(argv)
    try:
        plan = plan_from_flags(flags)
    except ParameterError as error:
        parser.error(str(error))
    if flags.json:
        print(json.dumps(plan_document(plan), indent=2))
    elif flags.explain:
        print(explain_plan(plan))
    else:
        print(guarantee_in_words(plan), tabulate_plan(plan), conclude_plan(plan), sep="\n\n")
    return 0

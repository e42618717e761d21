"""What Flink's planner for batch would have to walk, counted in a graph."""

import collections

__all__ = ["most_outputs", "planner_visits"]


def _steps(pipeline):
    """Transforms that are not made of others, and do not only hand on what they got."""
    every = pipeline.to_runner_api().components.transforms.values()
    return [step for step in every if not step.subtransforms and not set(step.inputs.values()) & _outputs(step)]


def _outputs(step):
    return set(step.outputs.values())


def planner_visits(pipeline):
    """How many nodes a visitor meets that comes from every end of the graph along every path to the sources."""
    steps = _steps(pipeline)
    maker = {output: step for step in steps for output in _outputs(step)}
    read = {collection for step in steps for collection in step.inputs.values()}
    known = {}

    def visits(collection):
        if collection not in known:
            known[collection] = 1 + sum(visits(each) for each in maker[collection].inputs.values())
        return known[collection]

    return sum(visits(output) for step in steps for output in _outputs(step) - read)


def most_outputs(pipeline):
    """The most readers of a collection, and the most side inputs that are made of what one step gives.

    Flink runs a step together with those that read it, so what these give are outputs of one node.
    """
    steps = _steps(pipeline)
    maker = {output: name for name, step in enumerate(steps) for output in _outputs(step)}
    readers = collections.Counter(collection for step in steps for collection in step.inputs.values())
    copies = collections.Counter(
        maker[next(iter(step.inputs.values()))] for step in steps if len(step.inputs) == 1 for _ in step.outputs
    )
    return max(*readers.values(), *copies.values())

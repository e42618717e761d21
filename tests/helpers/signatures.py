"""Beam asks for the signature of every method of every step, many times for each graph; tests remember the answers."""

import sys
import types
import weakref


def remember_signatures():
    """Replaces Beam's function, if Beam is loaded. The answer is the same for a function, whatever it is bound to.

    Of a small graph's CPU time this is a fifth. A method that a test replaces is another function.
    """
    core = sys.modules.get("apache_beam.transforms.core")
    original = getattr(core, "get_function_args_defaults", None)
    if original is None or hasattr(original, "answers"):
        return
    answers = weakref.WeakKeyDictionary()

    def get_function_args_defaults(f):
        if type(f) is not types.MethodType or not isinstance(f.__func__, types.FunctionType):
            return original(f)
        if f.__func__ not in answers:
            answers[f.__func__] = original(f)
        return tuple(map(list, answers[f.__func__]))

    get_function_args_defaults.answers = answers
    core.get_function_args_defaults = get_function_args_defaults

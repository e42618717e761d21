"""Sums in Python's integers, apart from the library's."""


def squares(user, weight, users):
    total = [0] * users
    for owner, value in zip(user.tolist(), weight.tolist(), strict=True):
        total[owner] += value * value
    return total

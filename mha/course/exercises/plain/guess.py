"""Guess what went wrong where an answer is none of an exercise's known mistakes: what holds for any exercise.

A tensor is known by what it has (``.numel``), so that nothing here needs torch: a change that only tensors have fails
for a number, and then it does not fit.
"""

import math


def guess(judge, exercise, answer, results):
    """Say how wrong results lie to the right ones, or nothing.

    First the solution is given other arguments (exchanged, without one of them, one transposed, …), then its result is
    changed (another sign, reversed, …), and last a factor is looked for. A guess must fit on every case.

    :param judge: calls functions, compares values and knows the names of arguments.
    :param results: what the answer gives for each case of the exercise.
    """
    cases, same = exercise.cases(), judge.words.same

    def solve(case):
        return judge.call(exercise.solution, case, exercise.seconds, shown=False)[0]

    def fits(change_case, change_result=lambda right, _: right):
        for n in range(len(cases)):
            try:
                right = solve(change_case(cases[n]))
                if not same(change_result(right, results[n]), results[n], exercise.tolerance):
                    return False
            except (Exception, SystemExit, judge.stopped):
                return False
        return True

    rights = [solve(case) for case in cases]
    if all(_reshaped(results[n], rights[n], same) for n in range(len(cases))):
        return "the numbers are right, only the shape is not"
    names = judge.names(answer, cases[0])
    names = names if len(names) == len(cases[0]) else []
    for said, change in _other_arguments(names, cases[0]):
        if fits(change):
            return said
    for said, change in RESULTS:
        if fits(lambda case: case, lambda right, result, change=change: _where_wrong(right, result, change, same)):
            return said
    by_arguments = _beside(names, cases, results, rights, exercise.tolerance, same)
    return by_arguments or _term(names, cases, results, rights) or _factor(results, rights, exercise.tolerance)


def _is_tensor(value):
    return hasattr(value, "numel")


def _is_mask(value):
    return _is_tensor(value) and str(value.dtype) == "torch.bool"


def _reshaped(result, right, same):
    if not (_is_tensor(result) and _is_tensor(right)) or result.shape == right.shape:
        return False
    return result.numel() == right.numel() and same(result.reshape(right.shape), right, 1e-6)


def _other_arguments(names, case):
    """Make all changes of a case, each with the words for it."""
    for n, name in enumerate(names):
        for other in range(len(names)):
            if other != n and type(case[n]) is type(case[other]):
                if other > n:
                    yield f"`{name}` and `{names[other]}` have changed places", _exchanged(n, other)
                yield f"`{names[other]}` is used in place of `{name}`", _instead(n, other)
        for said, change in ARGUMENTS:
            yield said.format(name), _with(n, change)
    yield "all matrices are transposed", lambda case: tuple([x.mT if _is_matrix(x) else x for x in case])


def _is_matrix(x):
    return _is_tensor(x) and x.ndim == 2 and x.shape[0] == x.shape[1]


def _instead(n, other):
    return lambda case: case[:n] + (case[other],) + case[n + 1 :]


def _exchanged(n, other):
    def change(case):
        changed = list(case)
        changed[n], changed[other] = case[other], case[n]
        return tuple(changed)

    return change


def _with(n, change):
    return lambda case: case[:n] + (change(case[n]),) + case[n + 1 :]


def _number(change):
    """Apply a change to a number or to a tensor of numbers, and refuse anything else."""

    def changed(value):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number and (not _is_tensor(value) or _is_mask(value)):
            raise TypeError(type(value).__name__)
        return change(value)

    return changed


def _integer(change):
    def changed(value):
        if type(value) is not int:
            raise TypeError(type(value).__name__)
        return change(value)

    return changed


def _yes_or_no(change):
    def changed(value):
        if not _is_mask(value):
            raise TypeError(type(value).__name__)
        return change(value)

    return changed


def _root(x):
    return x.sqrt() if _is_tensor(x) else math.sqrt(x)


ARGUMENTS = [  # in this order, which a dict of MicroPython does not keep
    ("`{}` is left out: the result is the one for 0", _number(lambda x: x * 0)),
    ("`{}` is left out: the result is the one for 1", _number(lambda x: x * 0 + 1)),
    ("the sign of `{}` is wrong", _number(lambda x: -x)),
    ("`{}` is taken one too small", _integer(lambda x: x - 1)),
    ("`{}` is taken one too large", _integer(lambda x: x + 1)),
    ("`{}` divides where it should multiply, or the other way round", _number(lambda x: 1 / x)),
    ("`{}` is squared", _number(lambda x: x * x)),
    ("the square root of `{}` is taken", _number(_root)),
    (
        "`{}` is divided by the square root of its last axis' length, once too often",
        _number(lambda x: x / x.shape[-1] ** 0.5),
    ),
    (
        "`{}` is multiplied by the square root of its last axis' length, once too often",
        _number(lambda x: x * x.shape[-1] ** 0.5),
    ),
    ("`{}` went through a softmax first", _number(lambda x: x.softmax(-1))),
    ("`{}` went through a softmax over its first axis", _number(lambda x: x.softmax(0))),
    ("`{}` went through a sigmoid first", _number(lambda x: x.sigmoid())),
    ("the exponential of `{}` is taken first", _number(lambda x: x.exp() if _is_tensor(x) else math.exp(x))),
    ("one minus `{}` is used", _number(lambda x: 1 - x)),
    ("`{}` counts twice", _number(lambda x: 2 * x)),
    ("`{}` counts by half only", _number(lambda x: x / 2)),
    ("True and False of `{}` have changed places", _yes_or_no(lambda x: ~x)),
    ("`{}` is not used", _yes_or_no(lambda x: x | True)),
    ("`{}` is transposed: its last two axes have changed places", lambda x: x.mT),
    ("`{}` is read in reverse order", lambda x: x.flip(0) if _is_tensor(x) else x[::-1]),
    ("the last axis of `{}` is read in reverse order", lambda x: x.flip(-1)),
    ("only the first of `{}` is used, for all", lambda x: x[:1].expand_as(x)),
    ("only the last of `{}` is used, for all", lambda x: x[-1:].expand_as(x)),
    ("the mean of `{}` over its first axis is used", lambda x: x.mean(0, keepdim=True).expand_as(x)),
]


def _where_wrong(right, result, change, same):
    """Change a right result; of a list, only the entries that the answer has wrong."""
    if change is _reversed or not isinstance(right, (list, tuple)):
        return change(right)
    if not all(isinstance(x, (bool, int, float)) for x in right):
        return [right[n] if same(right[n], result[n], 1e-6) else change(right[n]) for n in range(len(right))]
    return change(right)


def _reversed(right):
    return right.flip(0) if _is_tensor(right) else right[::-1]


def _matrix(right):
    return right.mT if right.ndim > 1 else right[None]


RESULTS = [
    ("the sign is wrong", lambda r: [-x for x in r] if isinstance(r, (list, tuple)) else -r),
    ("True and False have changed places", _yes_or_no(lambda r: ~r)),
    ("the result is transposed: its last two axes have changed places", _matrix),
    ("the order is reversed", _reversed),
    ("each entry of the list is in reverse order", lambda r: r.flip(0) if _is_tensor(r) else r[::-1]),
    ("the order along the last axis is reversed", lambda r: r.flip(-1)),
    ("the order along the axis before the last is reversed", lambda r: r.flip(-2)),
    ("everything is one too small", lambda r: [x - 1 for x in r] if isinstance(r, (list, tuple)) else r - 1),
    ("everything is one too large", lambda r: [x + 1 for x in r] if isinstance(r, (list, tuple)) else r + 1),
    ("this is one minus the right result", _number(lambda r: 1 - r)),
    ("it is upside down: this is one divided by the right result", _number(lambda r: 1 / r)),
    ("it is squared", _number(lambda r: r * r)),
    ("the square root is taken", _number(_root)),
    ("the logarithm is taken", lambda r: r.log() if _is_tensor(r) else math.log(r)),
    ("the exponential is taken", lambda r: r.exp() if _is_tensor(r) else math.exp(r)),
    ("it went through one more softmax", lambda r: r.softmax(-1)),
    ("each row is divided by its sum", lambda r: r / r.sum(-1, keepdim=True)),
    ("it is averaged over the first axis", lambda r: r.mean(0, keepdim=True).expand_as(r)),
    ("it is rounded to whole numbers", lambda r: r.round() if _is_tensor(r) else round(r)),
]


BESIDE = [
    ("this is `{}`, as it came", lambda right, x: x),
    ("`{}` is added to the result", lambda right, x: right + x),
    ("`{}` is taken away from the result", lambda right, x: right - x),
    ("the result is taken away from `{}`", lambda right, x: x - right),
    ("the result is multiplied by `{}`", lambda right, x: right * x),
    ("the result is divided by `{}`", lambda right, x: right / x),
]


def _beside(names, cases, results, rights, tolerance, same):
    """Say that a result is one of the arguments, or has one added to it or taken away from it."""
    for words, make in BESIDE:
        for n in range(len(names)):
            if any(isinstance(case[n], bool) for case in cases):
                continue
            try:
                fits = all(same(make(rights[i], cases[i][n]), results[i], tolerance) for i in range(len(cases)))
            except Exception:
                continue
            if fits:
                return words.format(names[n])
    return ""


def _term(names, cases, results, rights):
    """Say that a count has a term too many or too few: a product of up to three arguments, and of 1, 2, 4 or 8."""
    if not all(type(x) is int for x in list(results) + list(rights)):
        return ""
    whole = [n for n in range(len(names)) if all(type(case[n]) is int for case in cases)]
    for chosen in _with_repetition(whole, 3):
        products = [_product([case[n] for n in chosen]) for case in cases]
        for times in (1, 2, 4, 8):
            factors = ([str(times)] if times > 1 or not chosen else []) + [f"`{names[n]}`" for n in chosen]
            what = " · ".join(factors)
            if all(results[i] - rights[i] == times * products[i] for i in range(len(cases))):
                return f"the result is too large by {what}"
            if all(rights[i] - results[i] == times * products[i] for i in range(len(cases))):
                return f"the result is too small by {what}"
    return ""


def _with_repetition(whole, most):
    """List all choices of up to ``most`` of some numbers, each in order, the small ones first."""
    every, last = [[]], [[]]
    for _ in range(most):
        last = [chosen + [n] for chosen in last for n in whole if not chosen or n >= chosen[-1]]
        every += last
    return every


def _product(numbers):
    product = 1
    for number in numbers:
        product *= number
    return product


def _factor(results, rights, tolerance):
    """Say that all numbers are too large or too small by one factor."""
    factors, many = [], True
    for i in range(len(results)):
        if _is_tensor(results[i]) and (results[i].shape != rights[i].shape or not results[i].is_floating_point()):
            return ""
        a, b = _flat(results[i]), _flat(rights[i])
        if len(a) != len(b) or not any(b) or not any(a):
            return ""
        largest = max(range(len(b)), key=lambda n: abs(b[n]))
        factors.append(a[largest] / b[largest])
        many = many and len(b) > 2
        if not all(_near(a[n], factors[-1] * b[n], tolerance) for n in range(len(b))):
            return ""
    if max(factors) - min(factors) <= 1e-6 * abs(factors[0]):
        return f"every number is {factors[0]:.4g} times the right one"
    if many:
        found = ", ".join([f"{factor:.4g}" for factor in factors])
        return f"a factor is too much or missing: the right numbers are multiplied by {found} in the cases"
    return ""


def _near(a, b, tolerance):
    return abs(a - b) <= tolerance + 10 * tolerance * abs(b)


def _flat(value):
    """List the numbers in a value, in order; raises where there is something else in it."""
    if _is_tensor(value):
        return value.double().flatten().tolist()
    if not isinstance(value, (list, tuple)):
        return [float(value + 0)]
    if any(_is_tensor(part) for part in value):
        raise TypeError("a list of tensors")
    parts = [_flat(part) for part in value]
    if len({len(part) for part in parts}) > 1:
        raise ValueError("rows of different lengths")
    return [x for part in parts for x in part]

"""The oracle: attention in plain Python numbers and loops, straight from the formulas.

Nothing here is fast and nothing is clever. A matrix is a list of rows, a row is a list of floats. Every faster
version in this package is tested against these functions. Only ``math`` is imported, so the file also runs where
there is no NumPy and no torch: in a browser, or on a microcontroller.

:Taught in: why_attention, why_scale, masking, why_many_heads, split_and_merge, output_projection.
"""

import math


def dot(a, b):
    """Multiply two vectors number by number and add up.

    :param a: a list of numbers.
    :param b: a list as long.
    :Shapes: returns one float.
    :Raises: ValueError where the lengths differ.
    """
    if len(a) != len(b):
        raise ValueError(f"dot of a vector of length {len(a)} with one of length {len(b)}: they must be equally long")
    return sum(x * y for x, y in zip(a, b))  # noqa: B905 (lengths were compared; MicroPython has no strict=)


def transpose(rows):
    """Turn rows into columns.

    :param rows: (n, m).
    :Shapes: returns (m, n).
    """
    return [list(column) for column in zip(*rows)]  # noqa: B905


def matmul(a, b):
    """Multiply two matrices: entry (i, j) is the dot product of row i of ``a`` with column j of ``b``.

    :param a: (n, m).
    :param b: (m, p).
    :Shapes: returns (n, p).
    """
    columns = transpose(b)
    return [[dot(row, column) for column in columns] for row in a]


def softmax(row):
    """Turn any numbers into positive weights that sum to one.

    The largest number is taken away first: the result is the same, and ``exp`` cannot overflow. An entry of minus
    infinity gets weight 0. A row of nothing but minus infinities has nothing to choose from and gives zeros.

    :param row: a list of n numbers.
    :Shapes: returns a list of length n.
    """
    top = max(row)
    if top == -math.inf:
        return [0.0 for _ in row]
    powers = [math.exp(x - top) for x in row]
    total = sum(powers)
    return [p / total for p in powers]


def attention_scores(q, k, scale=None):
    """Compare every query with every key.

    :param q: i queries of width d.
    :param k: j keys of width d.
    :param scale: what each score is multiplied by; 1/√d unless given.
    :Shapes: returns scores (i, j).
    """
    if scale is None:
        scale = 1 / math.sqrt(len(q[0]))
    return [[scale * dot(query, key) for key in k] for query in q]


def attention_weights(q, k, mask=None, scale=None):
    """Say how much each query takes from each key: the softmax of the scores, row by row.

    :param q: i queries of width d.
    :param k: j keys of width d.
    :param mask: (i, j) of True (may attend) and False; every key may be attended to unless given.
    :param scale: what each score is multiplied by; 1/√d unless given.
    :Shapes: returns weights (i, j).
    """
    scores = attention_scores(q, k, scale)
    if mask is not None:
        scores = [
            [s if see else -math.inf for s, see in zip(row, may)]  # noqa: B905
            for row, may in zip(scores, mask)  # noqa: B905
        ]
    return [softmax(row) for row in scores]


def attention(q, k, v, mask=None, scale=None):
    """Read from the values: each output row is an average of the value rows, weighted by attention.

    :param q: i queries of width d.
    :param k: j keys of width d.
    :param v: j values of width c.
    :param mask: (i, j) of True (may attend) and False; every key may be attended to unless given.
    :param scale: what each score is multiplied by; 1/√d unless given.
    :Shapes: returns (i, c).
    :Source: Vaswani et al. 2017, equation 1.
    """
    return matmul(attention_weights(q, k, mask, scale), v)


def causal_mask(n):
    """Let position i look at positions 0 to i only: a square of True on and below the diagonal.

    :param n: how many positions.
    :Shapes: returns (n, n).
    """
    return [[j <= i for j in range(n)] for i in range(n)]


def multi_head_attention(x, w_q, w_k, w_v, w_o, heads, memory=None, mask=None):
    """Attend ``heads`` times, each time with an own slice of the projected channels, and mix the results.

    Row convention: a row of ``x`` is one position, and ``x`` is multiplied from the right. No biases.

    :param x: what asks, (i, m).
    :param w_q: makes the queries, (m, h·d).
    :param w_k: makes the keys, (m, h·d).
    :param w_v: makes the values, (m, h·d).
    :param w_o: mixes the heads, (h·d, m).
    :param heads: how many heads, h; they divide the columns of ``w_q``.
    :param memory: what is attended to, (j, m); ``x`` unless given.
    :param mask: (i, j) of True (may attend) and False; every key may be attended to unless given.
    :Shapes: returns (i, m).
    :Source: Vaswani et al. 2017, section 3.2.2.
    """
    memory = x if memory is None else memory
    q, k, v = matmul(x, w_q), matmul(memory, w_k), matmul(memory, w_v)
    d = len(q[0]) // heads
    joined = [[] for _ in x]
    for h in range(heads):
        qh, kh, vh = ([row[h * d : (h + 1) * d] for row in rows] for rows in (q, k, v))
        for row, read in zip(joined, attention(qh, kh, vh, mask)):  # noqa: B905
            row.extend(read)
    return matmul(joined, w_o)


# The running example of the first chapters: three words, four channels, two heads of width two, whole numbers only.
# Channels of a word: is it a small grammar word, has it to do with water, is it a place, has it to do with money.
# Head 0 lets a place ask what kind of place it is. Head 1 ties nouns and their determiner together.
EXAMPLE = {
    "words": ["the", "river", "bank"],
    "channels": ["grammar", "water", "place", "money"],
    "heads": 2,
    "x": [[1, 0, 0, 0], [0, 2, 0, 0], [0, 1, 2, 1]],
    "money": [0, 0, 0, 2],  # the word to put in place of "river"
    "w_q": [[0, 1, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0]],
    "w_k": [[0, 1, 1, 0], [1, 0, 0, 0], [-1, 0, 0, 1], [1, 0, 0, 0]],
    "w_v": [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]],
    "w_o": [[0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0]],
}

"""Draw inputs that an exercise allows, without torch: whole numbers, numbers, lists of numbers."""

import math


class _Stream:
    """Random numbers by a recurrence modulo 2⁶⁴; the highest of their bits are used."""

    def __init__(self, seed):
        self.state = seed
        for _ in range(4):
            self.next()

    def next(self):
        """Give the next number from 0, included, to 1, not included."""
        self.state = (6364136223846793005 * self.state + 1442695040888963407) % 2**64
        return (self.state >> 32) / 2**32


class Draw:
    """Draw sizes and numbers. Two draws with one ``form`` have the same sizes, and other numbers in them."""

    def __init__(self, form, numbers=0):
        """Begin two streams of random numbers: one decides the sizes, the other fills them."""
        self._sizes = _Stream(1000 + form)
        self._numbers = _Stream(7919 * form + 104729 * (numbers + 1))

    def whole(self, low, high):
        """Draw a size from ``low`` to ``high``, both included."""
        return low + int(self._sizes.next() * (high + 1 - low))

    def one_of(self, options):
        """Choose an option."""
        return options[self.whole(0, len(options) - 1)]

    def number(self, low, high):
        """Draw one number between two others, another one in each case."""
        return low + (high - low) * self._numbers.next()

    def integer(self, low, high):
        """Draw a whole number that is no size, from ``low`` to ``high``, another one in each case."""
        return low + int(self._numbers.next() * (high + 1 - low))

    def normals(self, *shape, scales=(1.0, 1.0, 0.1, 4.0)):
        """Draw a list of numbers around 0, or a list of such lists, whose size is one of ``scales``."""
        return self._normals(shape, self.one_of(scales))

    def _normals(self, shape, scale):
        if shape:
            return [self._normals(shape[1:], scale) for _ in range(shape[0])]
        radius = math.sqrt(-2 * math.log(1 - self._numbers.next()))  # Box and Muller
        return scale * radius * math.cos(2 * math.pi * self._numbers.next())

    def order(self, count):
        """Draw the numbers below ``count`` in some order."""
        keys = [self._numbers.next() for _ in range(count)]
        return sorted(range(count), key=lambda n: keys[n])

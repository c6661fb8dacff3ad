"""Compare two values, and say in words how they differ: numbers, truth values, texts, and lists of them.

``mha.course.exercises.compare`` adds tensors and arrays to it.
"""

import math

LONGEST = 300  # characters of a value that are shown


class Words:
    """Compare values of the kinds that plain Python has. A subclass knows more kinds."""

    kinds: tuple = (((list, tuple), "a list"), ((bool, int, float), "a number"))

    def compare(self, result, right, tolerance):
        """Say what is wrong with a result, or nothing: first its kind, then its form, then its numbers."""
        result = self.as_expected(result, right)
        if self.kind(result) != self.kind(right):
            cure = self.cure(result, right)
            return f"{self.kind(right)} was expected, your function returned {type(result).__name__}{cure}"
        found = self.form(result, right)
        if found or self.same(result, right, tolerance):
            return found
        if isinstance(right, (list, tuple)):
            return self._in_entry(result, right, tolerance)
        yours, other = self._unlike(result, right)
        return f"yours gives {yours}, right is {other}{self.first_difference(result, right, tolerance)}"

    def kind(self, value):
        """Name the kind of a value."""
        for kind, name in self.kinds:
            if isinstance(value, kind):
                return name
        return type(value).__name__

    def as_expected(self, result, right):
        """Write a right answer of a neighboring type as the expected one."""
        return result

    def cure(self, result, right):
        """Say how to turn a result into the kind that was expected, where there is a way."""
        return ""

    def form(self, result, right):
        """Say what is wrong with the form of a result of the right kind, or nothing."""
        if isinstance(right, (list, tuple)) and len(result) != len(right):
            return f"{len(right)} entries were expected, your function returned {len(result)}: {self.show(result)}"
        return ""

    def first_difference(self, result, right, tolerance):
        """Say where two values differ first, if that is not to be seen."""
        return ""

    def _in_entry(self, result, right, tolerance):
        """Say what is wrong with a list: the whole of a short one, otherwise the first entry that differs."""
        if all(isinstance(x, (bool, int, float, str)) for x in right):
            yours, other = self._unlike(result, right)
            return f"yours gives {yours}, right is {other}"
        where = 0
        for n in range(len(right)):
            if not self.same(result[n], right[n], tolerance):
                where = n
                break
        return f"entry {where}: {self.compare(result[where], right[where], tolerance)}"

    def _unlike(self, result, right):
        """Write two values with as many digits as it takes to tell them apart."""
        for digits in (4, 8, 17):
            yours, other = self.show(result, digits), self.show(right, digits)
            if yours != other:
                break
        return yours, other

    def largest_number(self, value):
        """Find the largest magnitude among all finite numbers in a value, or 1 where there is none."""
        if isinstance(value, (list, tuple)):
            return max([self.largest_number(x) for x in value], default=1.0)
        return abs(float(value)) if isinstance(value, (bool, int, float)) and math.isfinite(value) else 1.0

    def same(self, a, b, tolerance):
        """Say whether two values of any kind are equal up to a tolerance, and of the same form."""
        try:
            return self.equal(a, b, tolerance)
        except Exception:  # whatever cannot be compared is different
            return False

    def equal(self, a, b, tolerance):
        """Do what :meth:`same` does, but raise where values cannot be compared."""
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            return len(a) == len(b) and all(self.equal(a[n], b[n], tolerance) for n in range(len(a)))
        if isinstance(a, (bool, int, float)) and isinstance(b, (bool, int, float)):
            return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) or (math.isnan(a) and math.isnan(b))
        return type(a) is type(b) and bool(a == b)

    def show(self, value, digits=4):
        """Write a value in one short line."""
        try:
            text = self.write(value, digits)
        except Exception:
            text = f"something of type {type(value).__name__}"
        return _shortened(text)

    def show_case(self, names, case):
        """Write what a function was given in one short line, each value by the name that the function has for it."""
        if len(names) != len(case):
            return self.show(case)
        return _shortened(", ".join([f"{names[n]} = {self.show(case[n])}" for n in range(len(case))]))

    def write(self, value, digits=4):
        """Write a value in one line; it may be long."""
        if isinstance(value, float):
            return f"{value:.{digits}g}"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join([self.write(one, digits) for one in value]) + "]"
        return str(value)


def _shortened(text):
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"

"""Arrays that remember how they were made, so that recorded cases run backwards too.

`Traced` is a float array with a reverse pass. It knows just enough of NumPy for the
adapters of the recorded cases; every other function sees plain numbers and gives
constants, so a gradient that is lost on the way shows up as a wrong one. relpos's own
functions are wrapped by tape_library.py: their reverse pass is relpos's.
"""

from __future__ import annotations

import numpy as np
from oracle_gradients import sum_to


def value(x):
    """The plain numbers of a traced array, also inside lists and tuples."""
    if isinstance(x, (list, tuple)):
        return type(x)(value(item) for item in x)
    return x.value if isinstance(x, Traced) else x


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """A value, the traced arrays it came from, and the gradients of those.

    backward: from the gradient of this array to one for each parent.
    """

    def __init__(self, value, parents=(), backward=None):
        self.value, self.parents, self.backward = value, tuple(parents), backward

    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    dtype = property(lambda self: self.value.dtype)
    T = property(lambda self: self.transpose())

    def __len__(self):
        return len(self.value)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.value, dtype)

    def __array_ufunc__(self, ufunc, method, *inputs, **keywords):
        plain = value(inputs)
        result = getattr(ufunc, method)(*plain, **keywords)
        if method != "__call__" or ufunc.__name__ not in DERIVATIVES:
            return result
        slopes = DERIVATIVES[ufunc.__name__]
        used = [n for n, x in enumerate(inputs) if isinstance(x, Traced)]

        def backward(grad):
            found = slopes(grad, result, *plain)
            return [sum_to(found[n], inputs[n].shape) for n in used]

        return Traced(result, [inputs[n] for n in used], backward)

    def __array_function__(self, function, types, arguments, keywords):
        if function in FUNCTIONS:
            return FUNCTIONS[function](*arguments, **keywords)
        return function(*value(arguments), **{n: value(x) for n, x in keywords.items()})

    def __getitem__(self, index):
        def backward(grad):
            full = np.zeros(self.shape)
            np.add.at(full, index, grad)
            return [full]

        return Traced(self.value[index], [self], backward)

    def reshape(self, *shape):
        return Traced(
            self.value.reshape(*shape), [self], lambda grad: [grad.reshape(self.shape)]
        )

    def swapaxes(self, a, b):
        return Traced(
            self.value.swapaxes(a, b), [self], lambda grad: [grad.swapaxes(a, b)]
        )

    def transpose(self, *axes):
        order = axes or tuple(range(self.ndim))[::-1]
        back = np.argsort(order)
        return Traced(
            self.value.transpose(order), [self], lambda grad: [grad.transpose(back)]
        )

    def astype(self, dtype):
        """Gradients stay in float64."""
        return Traced(self.value.astype(dtype), [self], lambda grad: [grad])

    def mean(self, axis, keepdims=False):
        result = self.value.mean(axis, keepdims=True)
        share = result.size / self.value.size

        def backward(grad):
            return [np.broadcast_to(share * grad.reshape(result.shape), self.shape)]

        short = result if keepdims else result.squeeze(axis)
        return Traced(short, [self], backward)

    def any(self, axis=None):
        return self.value.any(axis)

    def max(self, *arguments, **keywords):
        return self.value.max(*arguments, **keywords)


def _matmul(grad, result, a, b):
    return grad @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ grad


#: Per ufunc: gradients of its inputs, before they are summed to the inputs' shapes.
DERIVATIVES = {
    "add": lambda grad, y, a, b: (grad, grad),
    "subtract": lambda grad, y, a, b: (grad, -grad),
    "multiply": lambda grad, y, a, b: (grad * b, grad * a),
    "divide": lambda grad, y, a, b: (grad / b, -grad * y / b),
    "matmul": _matmul,
    "exp": lambda grad, y, a: (grad * y,),
    "log": lambda grad, y, a: (grad / a,),
    "sqrt": lambda grad, y, a: (grad / (2 * y),),
    "power": lambda grad, y, a, b: (grad * b * a ** (b - 1), 0 * grad),
    "minimum": lambda grad, y, a, b: (grad * (a < b), grad * (b <= a)),
    "maximum": lambda grad, y, a, b: (grad * (a > b), grad * (b >= a)),
}


def _split(x, parts, axis=0):
    width = x.shape[axis] // parts
    before = (slice(None),) * (axis % x.ndim)
    return [x[(*before, slice(n * width, (n + 1) * width))] for n in range(parts)]


def _concatenate(arrays, axis=0):
    cuts = np.cumsum([x.shape[axis] for x in arrays])[:-1]
    used = [n for n, x in enumerate(arrays) if isinstance(x, Traced)]

    def backward(grad):
        pieces = np.split(grad, cuts, axis)
        return [pieces[n] for n in used]

    joined = np.concatenate(value(list(arrays)), axis)
    return Traced(joined, [arrays[n] for n in used], backward)


def _einsum(formula, *arrays):
    """Axes that an operand has alone, or shares by broadcasting, come back by NumPy."""
    plain, (terms, result) = value(arrays), formula.split("->")
    terms = terms.split(",")
    used = [n for n, x in enumerate(arrays) if isinstance(x, Traced)]

    def of(n, grad):
        others = [m for m in range(len(terms)) if m != n]
        given = ",".join([result, *(terms[m] for m in others)])
        wanted = (
            terms[n] if "..." in terms[n] or "..." not in result else "..." + terms[n]
        )
        full = np.einsum(f"{given}->{wanted}", grad, *(plain[m] for m in others))
        return sum_to(full, arrays[n].shape)

    return Traced(
        np.einsum(formula, *plain),
        [arrays[n] for n in used],
        lambda grad: [of(n, grad) for n in used],
    )


def _where(condition, a, b):
    result = np.where(condition, value(a), value(b))
    used = [(x, chosen) for x, chosen in ((a, condition), (b, ~condition))]
    used = [(x, chosen) for x, chosen in used if isinstance(x, Traced)]

    def backward(grad):
        return [sum_to(np.where(c, grad, 0.0), x.shape) for x, c in used]

    return Traced(result, [x for x, _ in used], backward)


def _broadcast_to(x, shape):
    return Traced(
        np.broadcast_to(x.value, shape), [x], lambda grad: [sum_to(grad, x.shape)]
    )


def _tril(x, k=0):
    return Traced(np.tril(x.value, k), [x], lambda grad: [np.tril(grad, k)])


FUNCTIONS = {
    np.tril: _tril,
    np.split: _split,
    np.concatenate: _concatenate,
    np.einsum: _einsum,
    np.where: _where,
    np.broadcast_to: _broadcast_to,
}


def reverse(seeds):
    """Gradients of every leaf, by id, of sum(<gradient, array>) over the seeds."""
    order, seen = [], set()

    def visit(node):
        if id(node) not in seen:
            seen.add(id(node))
            for parent in node.parents:
                visit(parent)
            order.append(node)

    grads = {}
    for node, grad in seeds:
        visit(node)
        grads[id(node)] = grads.get(id(node), 0.0) + grad
    for node in reversed(order):
        if node.parents and id(node) in grads:
            found = node.backward(grads.pop(id(node)))
            for parent, grad in zip(node.parents, found, strict=True):
                grads[id(parent)] = grads.get(id(parent), 0.0) + grad
    return grads

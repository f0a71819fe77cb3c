"""Names for the array types of the definitions."""

import numpy as np
import numpy.typing as npt

ArrayLike = npt.ArrayLike
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Rng = int | np.random.Generator | None

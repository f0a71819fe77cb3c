"""Every scheme once: inputs, NumPy form, definition, gradients and their limits."""

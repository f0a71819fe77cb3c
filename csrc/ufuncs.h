/* ufuncs.h: one row per gufunc: name, signature, inputs, outputs, types, one-line doc.
 * In `types` T is the loop's own dtype (float32, then float64), d is float64, l is int64.
 * Every ISA table holds the loop rp_<name>_<dtype>_<isa> for each row. */

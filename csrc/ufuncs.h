/* ufuncs.h: one row per gufunc: name, signature, inputs, outputs, types, one-line doc.
 * In `types` T is the loop's own dtype (float32, then float64), d is float64, l is int64;
 * t and D are T and d of an input that may be an output: the loop reads each element of it
 * before it writes the same place, whichever worker runs which unit.
 * The table of every object has a loop for each row, the function of that name. */
RP_UFUNC(sinusoidal, "(),(h),(h)->(h),(h)", 3, 2, "dDDTT",
         "Sine and cosine of position * (frequency_high + frequency_low).")
RP_UFUNC(
    rotary, "(l,d),(l),(l,h),(l,h),(l,h),()->(l,d)", 6, 1, "tddddlT",
    "x, positions, frequency_high, frequency_low, magnitude, interleaved: pairs of "
    "columns turned by position * frequency and scaled; columns from 2h on copied.")
RP_UFUNC(learned, "(r,d),(n)->(n,d)", 2, 1, "TlT",
         "Rows of a table: y[n] = table[positions[n]].")
RP_UFUNC(learned_backward, "(n,d),(n)->(r,d)", 2, 1, "TlT",
         "Adjoint of learned; out= gives the number of table rows r.")
RP_UFUNC(
    conv_encoding, "(h,w,e),(i,j,e),(e),(h,w),(),()->(h,w,e)", 6, 1, "TTTTllT",
    "x, weight, bias, mask, top, left: x + depthwise convolution over a grid padded "
    "by zeros, top rows and left columns before its first.")
RP_UFUNC(conv_encoding_backward, "(h,w,e),(h,w,e),(h,w),(),()->(i,j,e),(e)", 5, 2,
         "TTTllTT",
         "grad_out, x, mask, top, left: gradients of weight and bias of conv_encoding; "
         "out= gives the size (i, j) of the kernel.")
RP_UFUNC(gelu, "(n)->(n),(n)", 1, 2, "tTT",
         "x * F(x) with F the normal distribution, and its derivative.")
RP_UFUNC(skew, "(q,r)->(q,s)", 1, 1, "tT",
         "y[i, j] = x[i, q - 1 - i + j]; out= gives s = r - q + 1.")
RP_UFUNC(unskew, "(q,s)->(q,r)", 1, 1, "tT",
         "Adjoint of skew; out= gives r = q + s - 1.")
RP_UFUNC(rel_shift, "(q,k)->(q,k)", 1, 1, "TT",
         "Transformer-XL's relative shift, wrapped entries included.")
RP_UFUNC(rel_unshift, "(q,k)->(q,k)", 1, 1, "TT", "Adjoint of rel_shift.")
RP_UFUNC(shaw_scores, "(q,d),(k,d),(r,d),(),()->(q,k)", 5, 1, "tTTdlT",
         "query, key, rel_key, scale, query_offset: scale * q.(k + a), clipped to the "
         "r = 2k + 1 rows.")
RP_UFUNC(skewed_scores, "(q,d),(k,d),(r,d),(),(),()->(q,k)", 6, 1, "tTTdllT",
         "query, key, rel_key, scale, query_offset, min_relative_position: "
         "scale * q.(k + e), e = 0 outside the table.")
RP_UFUNC(transformer_xl_scores, "(q,d),(k,d),(r,d),(d),(d),(),()->(q,k)", 7, 1,
         "tTTTTdlT",
         "query, key, rel_key, pos_bias_u, pos_bias_v, scale, query_offset: "
         "scale * ((q + u).k + (q + v).r), row 0 at relative position -(k - 1).")
RP_UFUNC(merge, "(v),(),(v),()->(v),()", 4, 2, "ttttTT",
         "out_a, lse_a, out_b, lse_b: attention over two disjoint key sets joined.")
RP_UFUNC(shaw_attention, "(q,d),(k,d),(k,v),(r,d),(r,v)->(q,v)", 5, 1, "TTTTTT",
         "query, key, value, rel_key, rel_value: Shaw's attention; query i is at the "
         "position of key i.")
RP_UFUNC(relative_global_attention, "(q,d),(k,d),(k,v),(r,d)->(q,v)", 4, 1, "TTTTT",
         "query, key, value, rel_key: Music Transformer's causal attention; query i is "
         "at the position of key i, the last row is relative position 0.")
RP_UFUNC(transformer_xl_attention, "(q,d),(k,d),(k,v),(r,d),(d),(d)->(q,v)", 6, 1,
         "TTTTTTT",
         "query, key, value, rel_key, pos_bias_u, pos_bias_v: Transformer-XL's "
         "attention; the last query is at the last key; causal when r = k.")

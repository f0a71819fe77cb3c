/* rows.h: the arrays that a call may have, a row each. module.h makes the names of the rows of
 * this list, and operands.c its table. Whoever includes it defines the macros that it wants:
 *
 *   OPERAND  An argument of `attention` that has a gradient: its row, its name, its field of
 *            rp_attention, its shape, what numbers it has, which axes it may lack, and its
 *            role; then the row of its gradient, the field of rp_gradients, numbers and axes.
 *   TABLE    An OPERAND with a row for each relative position, bucket or label. Its field is
 *            an rp_table.
 *   OTHER    Any other array: its row, name, field of rp_gradients, shape, numbers and axes,
 *            its role in the forward and in the backward.
 *
 * Shapes are written in letters: after the batch axes come three of H heads, K key heads,
 * q queries, k keys, D, V (value head_dim), P (columns of rel_key), 1, 2, 3, A, C, W, B, t for
 * the rows of rel_key, rel_query, rel_value, rel_bias and log_decay, g and n for the groups of
 * heads and the keys of a query of key_indices, h, x, y for the groups of heads and the blocks of
 * queries and keys of key_blocks, and o, F, G for the q + k offsets, the ranges of FIRE's bias and
 * one more than these. shapes.c says what arrays may have of these axes. A letter takes the length of the first row that has it, so query, key
 * and value are the first rows. The dtype of a result follows from rows before LABELS, and
 * the rows of labels lie behind each other. */

#ifndef OPERAND
#define OPERAND(...)
#endif
#ifndef TABLE
#define TABLE(row, name, table, shape, numbers, of_gradient, gradient)                 \
    OPERAND(row, name, table.array, shape, numbers, SHARED, OPTIONAL, of_gradient,     \
            gradient, OF_T, SHARED)
#endif
#ifndef OTHER
#define OTHER(...)
#endif

OPERAND(QUERY, "query", query, "HqD", OF_16, TOKENS, REQUIRED, GRAD_QUERY, grad_query,
        OF_16, WHOLE)
OPERAND(KEY, "key", key, "KkD", OF_16, TOKENS, REQUIRED, GRAD_KEY, grad_key, OF_16,
        WHOLE)
OPERAND(VALUE, "value", value, "KkV", OF_16, TOKENS, REQUIRED, GRAD_VALUE, grad_value,
        OF_16, WHOLE)
OTHER(OUT, "out", forward.results.out, "HqV", OF_16, WHOLE, REQUIRED_OUTPUT, REQUIRED)
OTHER(KEPT, "kept", forward.results.kept, "HqV", OF_T, WHOLE, OUTPUT, UNKNOWN)
OTHER(LSE, "lse", forward.results.lse, "Hq1", OF_T, WHOLE, OUTPUT, UNKNOWN)
OTHER(ROW_MAX, "row_max", forward.results.row_max, "Hq1", OF_T, WHOLE, OUTPUT, REQUIRED)
OTHER(ROW_SUM, "row_sum", forward.results.row_sum, "Hq1", OF_T, WHOLE, OUTPUT, REQUIRED)
OTHER(WEIGHTS, "weights", forward.results.weights, "Hqk", OF_T, WHOLE, OUTPUT, UNKNOWN)
OPERAND(ATTN_MASK, "attn_mask", sight.mask, "Hqk", OF_MASK, PAIRS, OPTIONAL,
        GRAD_ATTN_MASK, grad_mask, OF_T, WHOLE)
TABLE(REL_KEY, "rel_key", rel_key, "HAP", OF_16, GRAD_REL_KEY, grad_rel_key)
TABLE(REL_QUERY, "rel_query", rel_query, "HCD", OF_16, GRAD_REL_QUERY, grad_rel_query)
TABLE(REL_VALUE, "rel_value", rel_value, "HWV", OF_16, GRAD_REL_VALUE, grad_rel_value)
TABLE(REL_BIAS, "rel_bias", rel_bias, "HB1", OF_T, GRAD_REL_BIAS, grad_rel_bias)
OPERAND(POS_BIAS_U, "pos_bias_u", pos_bias_u, "H1D", OF_T, SHARED, OPTIONAL,
        GRAD_POS_BIAS_U, grad_pos_bias_u, OF_T, SHARED)
OPERAND(POS_BIAS_V, "pos_bias_v", pos_bias_v, "H1P", OF_T, SHARED, OPTIONAL,
        GRAD_POS_BIAS_V, grad_pos_bias_v, OF_T, SHARED)
OPERAND(POSITION_QUERY, "position_query", position_query, "HqP", OF_16, TOKENS,
        OPTIONAL, GRAD_POSITION_QUERY, grad_position_query, OF_16, WHOLE)
/* of the next two gradients a unit of work adds up one head */
OPERAND(SINKS, "sinks", sinks, "Hq1", OF_T, HEADS, OPTIONAL, GRAD_SINKS, grad_sinks,
        OF_T, HEADS)
OPERAND(LOG_DECAY, "log_decay", log_decay.array, "Ht1", OF_T, TOKENS, OPTIONAL,
        GRAD_LOG_DECAY, grad_log_decay, OF_T, TOKENS)

#define LABEL(row, name, n)                                                            \
    OTHER(row, name, forward.labels.of[n].array, "1qk", OF_LABELS, PAIRS, OPTIONAL,    \
          OPTIONAL)
LABEL(LABELS, "labels", 0) /* or the first of several */
LABEL(LABELS_0, "labels[0]", 0)
LABEL(LABELS_1, "labels[1]", 1)
LABEL(LABELS_2, "labels[2]", 2)
LABEL(LABELS_3, "labels[3]", 3)
LABEL(LABELS_4, "labels[4]", 4)
LABEL(LABELS_5, "labels[5]", 5)
LABEL(LABELS_6, "labels[6]", 6)
LABEL(LABELS_7, "labels[7]", 7)
#undef LABEL

OTHER(KEY_INDICES, "key_indices", forward.picks.keys, "gqn", OF_I64, TOKENS, OPTIONAL,
      OPTIONAL)
OTHER(KEY_LABELS, "key_labels", forward.picks.labels, "gqn", OF_I64, TOKENS, OPTIONAL,
      OPTIONAL)
OTHER(KEY_RANGES, "key_ranges", forward.sight.key_ranges, "1q2", OF_I64, PAIRS,
      OPTIONAL, OPTIONAL)
OTHER(KEY_BLOCKS, "key_blocks", forward.sight.key_blocks, "hxy", OF_BOOL, TOKENS,
      OPTIONAL, OPTIONAL)
OTHER(FIRE_LINES, "fire_lines", forward.fire.lines, "HF3", OF_F64, TOKENS, OPTIONAL,
      OPTIONAL)
OTHER(FIRE_OFFSETS, "fire_offsets", forward.fire.offsets, "1o1", OF_F64, TOKENS,
      OPTIONAL, OPTIONAL)
OTHER(FIRE_QUERIES, "fire_queries", forward.fire.queries, "1q1", OF_F64, TOKENS,
      OPTIONAL, OPTIONAL)
OTHER(FIRE_OFFSET_SLOPES, "fire_offset_slopes", fire_offset_slopes, "1o1", OF_F64,
      TOKENS, UNKNOWN, OPTIONAL)
OTHER(FIRE_QUERY_SLOPES, "fire_query_slopes", fire_query_slopes, "1q2", OF_F64, TOKENS,
      UNKNOWN, OPTIONAL)
OTHER(GRAD_OUT, "grad_out", grad_out, "HqV", OF_16, WHOLE, UNKNOWN, OPTIONAL)
OTHER(GRAD_LSE, "grad_lse", grad_lse, "Hq1", OF_T, WHOLE, UNKNOWN, OPTIONAL)
OTHER(GRAD_FIRE, "grad_fire", grad_fire, "HG2", OF_F64, TOKENS, UNKNOWN, OUTPUT)

#undef OPERAND
#undef TABLE
#undef OTHER

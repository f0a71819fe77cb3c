/* rules.h: what a call says, and what follows: for the files that read a call and judge it. */
#ifndef RELPOS_RULES_H
#define RELPOS_RULES_H

#include "module.h"

/* ---- rules.c -------------------------------------------------------------------------- */

/* What `beyond` may be in a call besides RP_CLIP and RP_ZERO. */
enum { RAISE_BEYOND = RP_ZERO + 1 };

/* What may be wrong with a call whose shapes fit. */
enum {
    HOLDS,
    NEEDS_REL_KEY, /* operand */
    LABELS_AND,    /* other: an option that labels do not go with */
    NEEDS_TABLE,   /* operand */
    UNEQUAL_ROWS,  /* operand, other; their rows. Tables with buckets */
    OUTSIDE_ROWS,  /* operand; index and value of a bucket, rows of the table */
    UNPLACED_ROWS, /* operand, other; their rows. Tables from a first position on */
    EVEN_ROWS,     /* operand; its rows */
    FIRE_HEADS,    /* of w2, which the query has not; units of w2 */
    NEEDS_OTHER,   /* operand, other: it says nothing without that */
    BLOCK_HEADS,   /* operand; its heads, key heads, query heads */
    BLOCK_COUNT,   /* operand; its blocks of queries and keys, and how many there are */
    NEEDS_OFFSET,  /* operand: what depends on positions */
    FAR_OFFSET,    /* query_offset */
    LONG_LENGTH,   /* key_lengths */
    UNSEEN_ROWS,   /* operand; positions of pairs, lowest and highest, and its own */
    SEES_AHEAD,    /* the highest position of pairs, which have sums of log_decay */
    NEEDS_SCALE,
    NEEDS_CAP, /* a softcap is above 0 */
    VANISHES,  /* operand, which is 0 in the dtype of the computation */
    OVERFLOWS, /* operand, which is infinite there */
    RULES
};

/* A rule that a call breaks, and its facts. */
typedef struct {
    int rule;
    const char *operand, *other;
    int64_t numbers[4];
} broken_rule;

/* Relative positions from the first on. */
typedef struct {
    int64_t first, count;
} position_span;

/* What a call says besides its arrays, and what follows from both. */
typedef struct {
    int beyond, is_causal, has_first, has_scale, has_softcap;
    int is_graph;          /* an edge, and no position, says the row of a pair */
    int has_fire, is_wide; /* FIRE's bias, and whether its parameters are float64 */
    int64_t fire_heads, fire_units;
    int64_t first, left, right; /* RP_UNBOUNDED: no side of the window */
    double scale, softcap;
    int has_blocks; /* of queries and keys, which lie in blocks of so many */
    int64_t block_queries, block_keys;
    array_view buckets; /* of a private copy, which holds a reference */

    int kind; /* of the computation */
    /* Of each table, and of the operands that tables of vectors become. */
    position_span spans[TABLES], of_vectors;
    position_span used; /* of the buckets, those that queries and keys can use */
    int sees_pairs;     /* and their positions */
    int64_t lowest, highest;
    broken_rule broken;
} call_rules;

/* Applies all rules, once shapes fit: returns whether they hold. Cuts right to what is causal,
 * makes a scale where there is none, and notes the kind of the result. Runs no Python code. */
int apply_rules(attention_call *call, call_rules *rules);
/* Note the rule that is broken, with names and numbers; both return that it does not hold. */
int breaks(call_rules *rules, int rule, const char *operand, const char *other);
int by_numbers(call_rules *rules, int64_t a, int64_t b, int64_t c, int64_t d);
/* Whether a call has an operand, and the name of one. */
int has(const attention_call *call, int operand);
const char *name_of(int operand);
/* Labels are one array, or several that begin with the row behind it. */
int is_labelled(const attention_call *call);
int64_t clamp(int64_t x, int64_t low, int64_t high);
/* Name by which Python knows a rule. */
const char *name_of_rule(int rule);

/* ---- places.c ------------------------------------------------------------------------- */

/* Places the tables, which have rows for positions, unless labels or edges say them. */
int place_tables(const attention_call *call, call_rules *rules);
/* Keeps the buckets that queries and keys can use, once all rules hold. */
void use_buckets(const attention_call *call, call_rules *rules);
/* The rows that buckets list for the positions that queries and keys can use, whose number is
 * that of rules->used. */
const int64_t *used_buckets(const call_rules *rules);
/* Whether a table has to be gathered before the call, and which of its rows then serves each
 * position of its operand, as a new array of int64; -1: none. */
int is_gathered(const attention_call *call, const call_rules *rules, int table);
PyObject *list_rows(const call_rules *rules, int table);
/* Stores what follows from the rules in the problem of a call. */
void store_facts(attention_call *call, const call_rules *rules);

/* ---- seen.c --------------------------------------------------------------------------- */

/* Check the integers of batch items, and the pairs that queries see. */
int check_batch_items(const attention_call *call, call_rules *rules);
int check_seen(const attention_call *call, call_rules *rules);

/* ---- arguments.c, buckets.c -------------------------------------------------------------- */

/* A call of which C reads the arguments. */
typedef struct {
    attention_call call;
    call_rules rules;
    int of_tensors, records; /* what the arguments are; whether autograd records */
    int keeps; /* what a backward needs, also where none of them asks for it */
    int groups, has_lse, requires_grad;
    int64_t offset, length; /* query_offset and key_lengths */
    unsigned given;         /* a bit for each that is no array */
} direct_call;

/* Name of the argument of a position; NULL: none has it. */
PyObject *name_at(Py_ssize_t position);
/* Whether the name is that of an argument that is no array. */
int is_other_argument(const PyObject *name);
/* Whether None is how a caller leaves the argument of a name out. */
int may_be_none(const PyObject *name);
/* The plain array, or the view of the plain tensor, that a value is, as a new reference; NULL
 * of another value. */
PyObject *plain_array(direct_call *d, PyObject *value);
/* Each returns whether it took the value; an error may be set where it did not. */
int take_argument(direct_call *d, PyObject *name, PyObject *value);
int take_operand(direct_call *d, int index, PyObject *value);
/* Takes the row of each relative position. */
int take_buckets(direct_call *d, PyObject *value);
/* Whether kinds, shapes and numbers of all arguments fit: then the call can run. */
int fit_arguments(direct_call *d);

/* ---- direct.c ----------------------------------------------------------------------------- */

/* Results before the tensors of a call in what a backward is given: out, row_max, row_sum. */
enum { KEPT_TENSORS = 3 };

/* What a backward is given. */
typedef struct {
    PyObject *names, *saved; /* of the tensors; what is kept, and the tensors */
    PyObject *wanted;        /* flags, of which those of the tensors come last */
    Py_ssize_t first_wanted; /* how many come before them */
    PyObject *values;        /* a dict of the arguments that are no tensors */
    PyObject *grads[2];      /* of out and lse, or None */
} backward_request;

direct_call new_call(int direction);
void release_direct(direct_call *d);
/* Takes the number of threads of calls without one; 0: relpos's own. */
int take_threads(direct_call *d, PyObject *number);
/* Finds the next argument that is given, those by position first: args are a tuple and a dict. */
int next_argument(PyObject *const *args, Py_ssize_t *at, PyObject **name,
                  PyObject **value);
/* Take the arguments of a forward, or all that a backward is given, and the rows of the
 * gradients that it has to make, -1 for none; -1 without an error of what is no request. */
int take_arguments(direct_call *d, PyObject *const *args);
int take_backward(direct_call *d, const backward_request *asked, int *rows);
/* Runs the call, if its arguments were taken: returns whether it did; -1 with an error. */
int run_direct(direct_call *d, const rp_isa *isa, int is_taken);
/* Sets the exception of arguments that Python code of relpos would not pass. */
PyObject *refuse_call(const char *function, const char *expected);

#endif

/* conditions.c: what problems.h asks of the memory and of the numbers of a call, beyond kinds
 * and shapes. */
#include "module.h"

#include <math.h>

/* ---- memory ---------------------------------------------------------------------- */

static int
refuse_overlap(const attention_call *call, int result, const char *other)
{
    char what[128];
    snprintf(what, sizeof what, "overlaps %s in memory; expected memory of its own",
             other);
    return reject(call, PyExc_ValueError, operand_rows[result].entry.name, what);
}

/* Whether a result lies where another array of the call does. */
static int
check_result_memory(const attention_call *call, int result)
{
    const array_view *view = &call->views[result];
    for (int i = 0; i < OPERANDS; i++)
        if (i != result && has_elements(&call->views[i]) &&
            may_overlap(view, &call->views[i]))
            return refuse_overlap(call, result, operand_rows[i].entry.name);
    for (int i = 0; i < EDGE_VECTORS; i++) {
        array_view edges = {0};
        if (call->edges[i] != NULL && take_view((PyObject *)call->edges[i], &edges) &&
            has_elements(&edges) && may_overlap(view, &edges))
            return refuse_overlap(call, result, edge_entries[i].name);
    }
    return 0;
}

int
check_memory(const attention_call *call)
{
    for (int i = 0; i < OPERANDS && !call->counts; i++)
        if (operand_rows[i].roles[call->direction] >= OUTPUT &&
            has_elements(&call->views[i]) && check_result_memory(call, i) < 0)
            return -1;
    return 0;
}

/* ---- numbers --------------------------------------------------------------------- */

static const char *
at_item(const rp_array *array, int64_t b, int64_t h, int64_t row)
{
    return array->data + (array->batch ? array->batch[b] : 0) + h * array->head +
           row * array->row;
}

static int64_t
query_offset_of(const rp_attention *p, int64_t b)
{
    return p->sight.query_offset ? p->sight.query_offset[b] : 0;
}

/* Whether an array has the numbers of item 0 for item b. */
static int
is_item_0(const rp_array *array, int64_t b)
{
    return array->batch == NULL || array->batch[b] == array->batch[0];
}

/* FIRE's tables of each batch item, and the starts of its ranges. */
static int
check_fire_numbers(const attention_call *call)
{
    const rp_gradients *g = &call->problem;
    const rp_attention *p = &g->forward;
    const rp_fire *fire = &p->fire;
    if (fire->lines.batch != NULL)
        return reject(call, PyExc_ValueError, "fire_lines",
                      "must serve all batch items");
    for (int64_t n = 1; n < fire->ranges; n++) {
        const char *before = at_item(&fire->lines, 0, 0, n - 1);
        const char *start = at_item(&fire->lines, 0, 0, n);
        if (*(const double *)start < *(const double *)before)
            return reject(call, PyExc_ValueError, "fire_lines",
                          "has starts that fall; expected starts that rise");
    }
    for (int64_t b = 1; b < p->B; b++) {
        int is_at_0 = query_offset_of(p, b) == query_offset_of(p, 0);
        if (!is_at_0 && is_item_0(&fire->offsets, b))
            return reject(call, PyExc_ValueError, "fire_offsets",
                          "must be those of each item's query_offset");
        if (g->grad_fire.data && !is_item_0(&g->fire_offset_slopes, b) &&
            fire->offsets.batch == NULL && fire->queries.batch == NULL)
            return reject(call, PyExc_ValueError, "fire_offset_slopes",
                          "differ by batch item, but fire_offsets and fire_queries do "
                          "not");
    }
    return 0;
}

/* Whether the query sees a key after its own position. */
static int
sees_later_key(const rp_attention *p, int64_t b, int64_t i)
{
    const rp_sight *sight = &p->sight;
    int64_t at = i + query_offset_of(p, b), begin = at + 1;
    int64_t end = sight->key_lengths ? sight->key_lengths[b] : p->Lk;
    if (sight->window_right < end - at)
        end = at + sight->window_right + 1;
    if (sight->key_ranges.data) {
        const char *range = at_item(&sight->key_ranges, b, 0, i);
        int64_t first = *(const int64_t *)range;
        int64_t stop = *(const int64_t *)(range + sight->key_ranges.col);
        begin = first > begin ? first : begin;
        end = stop < end ? stop : end;
    }
    return (begin > 0 ? begin : 0) < end;
}

/* Whether the numbers of log_decay are finite, and no query sees a key after it. */
static int
check_decay_numbers(const attention_call *call)
{
    const rp_attention *p = &call->problem.forward;
    const rp_array *decay = &p->log_decay.array;
    /* a number that is repeated is looked at once: there may be any number of them */
    int64_t items = decay->batch ? p->B : 1, rows = decay->row ? p->log_decay.rows : 1;
    for (int64_t n = 0; n < items * p->H; n++)
        for (int64_t t = 0; t < rows && p->log_decay.rows > 0; t++) {
            const char *step = at_item(decay, n / p->H, n % p->H, t);
            double number =
                call->kind == KIND_F32 ? *(const float *)step : *(const double *)step;
            if (!isfinite(number))
                return reject(call, PyExc_ValueError, "log_decay", "must be finite");
        }
    for (int64_t n = 0; p->sight.window_right > 0 && n < p->B * p->Lq; n++)
        if (sees_later_key(p, n / p->Lq, n % p->Lq))
            return reject(call, PyExc_ValueError, "log_decay",
                          "needs every key after its query to be hidden");
    return 0;
}

int
check_numbers(const attention_call *call)
{
    const rp_attention *p = &call->problem.forward;
    if (call->counts)
        return 0;
    if (p->fire.lines.data && check_fire_numbers(call) < 0)
        return -1;
    if (p->picks.keys.data && check_picked_keys(call) < 0)
        return -1;
    return p->log_decay.array.data ? check_decay_numbers(call) : 0;
}

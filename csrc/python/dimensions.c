/* dimensions.c: what the letters of rows.h have met becomes the sizes of the problem. */
#include "module.h"

/* The tables of FIRE's bias, which come all or none, and those of its gradient. */
static int
check_fire(const attention_call *call)
{
    const rp_gradients *g = &call->problem;
    const rp_attention *p = &g->forward;
    const int64_t *dims = call->dims;
    int given = p->fire.lines.data != NULL, wanted = g->grad_fire.data != NULL;
    if ((p->fire.offsets.data != NULL) != given ||
        (p->fire.queries.data != NULL) != given ||
        (wanted && (!given || g->fire_offset_slopes.data == NULL ||
                    g->fire_query_slopes.data == NULL)))
        return reject(call, PyExc_ValueError, "fire_lines", "lacks other operands");
    if (given && (dims['o'] != p->Lq + p->Lk || dims['F'] < 1 ||
                  (dims['o'] > 1 && p->fire.offsets.row != sizeof(double))))
        return reject(call, PyExc_ValueError, "fire_offsets", "does not fit");
    if (wanted && dims['G'] != dims['F'] + 1)
        return reject(call, PyExc_ValueError, "grad_fire", "does not fit");
    return 0;
}

/* Sides beyond every relative position hide nothing, and none has to be added to a position.
 * With sides that leave no position between them tiles would begin behind their end. */
static int
cut_window(attention_call *call)
{
    rp_sight *sight = &call->problem.forward.sight;
    if (sight->window_left > RP_WIDEST)
        sight->window_left = RP_UNBOUNDED;
    if (sight->window_right > RP_WIDEST)
        sight->window_right = RP_UNBOUNDED;
    if (sight->window_left != RP_UNBOUNDED && sight->window_right < -sight->window_left)
        return reject(call, PyExc_ValueError, "window_right",
                      "lies before the window's left side");
    return 0;
}

/* Blocks of keys, whose sizes are numbers of the call. */
static int
check_block_sizes(const attention_call *call)
{
    const rp_sight *sight = &call->problem.forward.sight;
    const int64_t *dims = call->dims;
    if (sight->key_blocks.data == NULL)
        return 0;
    if (dims['x'] == (dims['q'] + sight->block_queries - 1) / sight->block_queries &&
        dims['y'] == (dims['k'] + sight->block_keys - 1) / sight->block_keys &&
        (dims['H'] == 0 || (dims['h'] == dims['H'] / sight->block_heads &&
                            dims['H'] % sight->block_heads == 0)))
        return 0;
    return reject(call, PyExc_ValueError, "key_blocks", "does not fit");
}

int
take_dimensions(attention_call *call)
{
    rp_attention *p = &call->problem.forward;
    const int64_t *dims = call->dims;
    size_t batch = 1;
    for (int axis = 0; axis < call->batch_ndim; axis++)
        if (!rp_multiply(batch, (size_t)call->batch_shape[axis], &batch))
            return reject(call, PyExc_ValueError, "query", "has too many batch items");
    p->B = (int64_t)batch;
    p->H = dims['H'];
    p->Hk = dims['K'];
    p->Lq = dims['q'];
    p->Lk = dims['k'];
    p->D = dims['D'];
    p->Dv = dims['V'];
    p->Dp = dims['P'];
#define TABLE(row, name, table, shape, ...)                                            \
    p->table.rows = dims[(int)shape[1]] < 0 ? 0 : dims[(int)shape[1]];
#include "rows.h"
    if (list_tables(call) < 0)
        return -1;
    p->log_decay.rows = dims['t'] < 0 ? 0 : dims['t'];
    p->picks.groups = dims['g'] < 0 ? 0 : dims['g'];
    p->picks.count = dims['n'] < 0 ? 0 : dims['n'];
    p->fire.ranges = dims['F'] < 0 ? 0 : dims['F'];
    p->rel_query.first = p->rel_value.first = p->rel_key.first;
    if (p->position_query.data && !p->rel_key.array.data)
        return reject(call, PyExc_ValueError, "position_query", "needs rel_key");
    return cut_window(call) < 0 || check_block_sizes(call) < 0 ? -1 : check_fire(call);
}

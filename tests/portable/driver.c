/* driver.c: the C core without Python: reads problems from standard input, runs them, and
 * writes what they ask for to standard output. tests/portable/remote.py is the other end.
 *
 *     driver [ISA]        by default the best that this CPU runs
 *
 * A problem is a header of 8-byte numbers and `arrays` arrays, each a header and its
 * elements; the answer is a status (8 bytes) and the elements of the arrays that are written.
 * All of it in the byte order of this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/isa/isa.h"

enum { ATTENTION_FORWARD, ATTENTION_BACKWARD, GRAPH_FORWARD, GRAPH_BACKWARD, LOOP };
enum { NAME_BYTES = 32, MOST_ARRAYS = 64, MOST_DIMENSIONS = 16 };

static const uint64_t MAGIC = UINT64_C(0x72656c706f733031); /* "relpos01" */

typedef struct {
    uint64_t magic;
    int64_t kind, dtype, arrays;
    /* of LOOP: which row of ufuncs.h, then its core dimensions */
    int64_t loop, dimensions[MOST_DIMENSIONS];
    int64_t B, H, Hk, Lq, Lk, D, Dv, Dp;
    int64_t rel_key_rows, rel_query_rows, rel_value_rows, rel_bias_rows;
    int64_t log_decay_rows, ranges, groups, picks, buckets, edges;
    int64_t first, bias_first, window_left, window_right;
    int64_t block_heads, block_queries, block_keys;
    int64_t fire_signed, beyond, weigh_all, mask_type, threads;
    uint64_t seed;
    int64_t part_query, part_key, part_head, part_key_heads, part_has_more_keys;
    double scale, softcap, dropout_p;
} header;

/* An array as it is sent: C-contiguous, an axis along which it repeats of length 1. */
typedef struct {
    char name[NAME_BYTES];
    int64_t itemsize, is_written;
    int64_t shape[4]; /* batch items that differ, heads, rows, columns */
    int64_t steps[8]; /* of a LOOP: its strides in bytes */
} array_header;

typedef struct {
    array_header head;
    char *data;
    ptrdiff_t *batch; /* byte offset of each of B items */
    size_t bytes;
} sent_array;

typedef struct {
    header head;
    sent_array arrays[MOST_ARRAYS];
    rp_gradients problem;
    rp_graph_gradients graph;
} request;

static void
stop(const char *why)
{
    fprintf(stderr, "driver: %s\n", why);
    exit(2);
}

static void
read_all(void *to, size_t bytes)
{
    if (bytes > 0 && fread(to, 1, bytes, stdin) != bytes)
        stop("the problem ends early");
}

static void *
take(size_t bytes)
{
    void *block =
        calloc(1, bytes + 64); /* kernels prefetch, and may be asked for nothing */
    if (block == NULL)
        stop("no memory");
    return block;
}

static void
read_array(request *asked, sent_array *array)
{
    int64_t map;
    read_all(&array->head, sizeof array->head);
    const int64_t *shape = array->head.shape;
    size_t item = (size_t)(shape[1] * shape[2] * shape[3] * array->head.itemsize);
    array->bytes = (size_t)shape[0] * item;
    array->data = take(array->bytes);
    array->batch = take((size_t)asked->head.B * sizeof *array->batch);
    for (int64_t b = 0; b < asked->head.B;
         b++) { /* which of the items that were sent */
        read_all(&map, sizeof map);
        array->batch[b] = (ptrdiff_t)((size_t)map * item);
    }
    read_all(array->data, array->bytes);
}

/* ---- attention ------------------------------------------------------------------------ */

static const struct {
    const char *name;
    size_t field; /* of an rp_array */
} operands[] = {
#define OPERAND(row, name, field, shape, numbers, axes, role, of_gradient, gradient,   \
                ...)                                                                   \
    {name, offsetof(rp_gradients, forward.field)},                                     \
        {"grad_" name, offsetof(rp_gradients, gradient)},
#define OTHER(row, name, field, ...) {name, offsetof(rp_gradients, field)},
#include "csrc/python/rows.h"
};

/* Byte strides of an axis of which one element may stand for all. */
static ptrdiff_t
stride(const array_header *head, int axis)
{
    int64_t bytes = head->itemsize;
    for (int inner = axis + 1; inner < 4; inner++)
        bytes *= head->shape[inner];
    return head->shape[axis] == 1 ? 0 : (ptrdiff_t)bytes;
}

static rp_array
view_of(const sent_array *array)
{
    const array_header *head = &array->head;
    int is_offset = strcmp(head->name, "fire_offsets") == 0; /* read as a line */
    return (rp_array){.data = array->data,
                      .batch = head->shape[0] > 1 ? array->batch : NULL,
                      .head = stride(head, 1),
                      .row = is_offset ? head->itemsize : stride(head, 2),
                      .col = stride(head, 3)};
}

/* Vectors of integers, of which there is nothing but the elements. */
static int
take_vector(request *asked, const sent_array *array)
{
    rp_sight *sight = &asked->problem.forward.sight;
    rp_graph *graph = &asked->graph.forward;
    const struct {
        const char *name;
        const int64_t **field;
    } vectors[] = {{"query_offset", &sight->query_offset},
                   {"key_lengths", &sight->key_lengths},
                   {"part_items", &asked->problem.forward.part.items},
                   {"buckets", &asked->problem.forward.rel_key.index},
                   {"indptr", &graph->indptr},
                   {"indices", &graph->indices},
                   {"edge_labels", &graph->labels}};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        if (strcmp(array->head.name, vectors[i].name) == 0) {
            *vectors[i].field = (const int64_t *)array->data;
            return 1;
        }
    return 0;
}

static void
take_operand(request *asked, const sent_array *array)
{
    rp_labels *labels = &asked->problem.forward.labels;
    if (take_vector(asked, array))
        return;
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        if (strcmp(array->head.name, operands[i].name) == 0) {
            *(rp_array *)((char *)&asked->problem + operands[i].field) = view_of(array);
            if (strncmp(array->head.name, "labels", 6) == 0)
                labels->of[labels->count++].size = (int)array->head.itemsize;
            return;
        }
    stop(array->head.name);
}

/* Gives each table the rows that positions have, which came as those of rel_key. */
static void
list_tables(rp_attention *p, int64_t count)
{
    rp_table *tables[] = {&p->rel_key, &p->rel_query, &p->rel_value, &p->rel_bias};
    const int64_t *index = p->rel_key.index;
    p->rel_key.index = NULL;
    for (int i = 0; index && i < 4; i++) {
        if (!tables[i]->array.data)
            continue;
        tables[i]->listed = tables[i]->rows;
        tables[i]->rows = count;
        tables[i]->index = index;
    }
}

static void
fill_attention(request *asked)
{
    const header *h = &asked->head;
    rp_attention *p = &asked->problem.forward;
    p->B = h->B, p->H = h->H, p->Hk = h->Hk, p->Lq = h->Lq, p->Lk = h->Lk;
    p->D = h->D, p->Dv = h->Dv, p->Dp = h->Dp;
    p->scale = h->scale, p->softcap = h->softcap;
    p->dropout = (rp_dropout){.p = h->dropout_p, .seed = h->seed};
    p->part.query = h->part_query, p->part.key = h->part_key;
    p->part.head = h->part_head, p->part.key_heads = h->part_key_heads;
    p->part.has_more_keys = (int)h->part_has_more_keys;
    p->rel_key.rows = h->rel_key_rows, p->rel_query.rows = h->rel_query_rows;
    p->rel_value.rows = h->rel_value_rows, p->rel_bias.rows = h->rel_bias_rows;
    p->rel_key.first = p->rel_query.first = p->rel_value.first = h->first;
    p->rel_bias.first = h->bias_first, p->log_decay.rows = h->log_decay_rows;
    p->fire.ranges = h->ranges, p->fire.is_signed = (int)h->fire_signed;
    p->sight.window_left = h->window_left, p->sight.window_right = h->window_right;
    p->sight.mask_type = (int)h->mask_type;
    p->sight.block_heads = h->block_heads;
    p->sight.block_queries = h->block_queries, p->sight.block_keys = h->block_keys;
    p->picks.groups = h->groups, p->picks.count = h->picks;
    p->beyond = (int)h->beyond, p->weigh_all = (int)h->weigh_all;
    p->threads = (int)h->threads;
    for (int64_t i = 0; i < h->arrays; i++)
        take_operand(asked, &asked->arrays[i]);
    list_tables(p, h->buckets);
}

/* The same problem along edges, of which the vectors are there already. */
static void
fill_graph(request *asked)
{
    const rp_graph edges = asked->graph.forward;
    rp_graph *to = &asked->graph.forward;
    asked->graph = rp_along_edges(&asked->problem);
    to->indptr = edges.indptr, to->indices = edges.indices, to->labels = edges.labels;
    to->edges = to->picks.keys.data ? to->Lq * to->picks.count : asked->head.edges;
}

/* ---- loops ---------------------------------------------------------------------------- */

static void
run_loop(const rp_kernels *kernels, const request *asked)
{
    char *args[MOST_ARRAYS];
    ptrdiff_t dimensions[MOST_DIMENSIONS], steps[MOST_ARRAYS * 9];
    int64_t count = asked->head.arrays, used = count;
    for (int i = 0; i < MOST_DIMENSIONS; i++)
        dimensions[i] = (ptrdiff_t)asked->head.dimensions[i];
    for (int64_t i = 0; i < count; i++) {
        args[i] = asked->arrays[i].data;
        steps[i] = 0; /* one turn */
        for (int axis = 0; axis < 8; axis++)
            if (asked->arrays[i].head.steps[axis] >= 0)
                steps[used++] = (ptrdiff_t)asked->arrays[i].head.steps[axis];
    }
    kernels->loops[asked->head.loop](args, dimensions, steps, NULL);
}

/* ---- one problem after another --------------------------------------------------------- */

static rp_status
run(const rp_isa *isa, request *asked)
{
    const rp_kernels *kernels = isa->kernels[asked->head.dtype];
    int64_t kind = asked->head.kind;
    if (kind == LOOP) {
        run_loop(kernels, asked);
        return RP_OK;
    }
    fill_attention(asked);
    fill_graph(asked);
    if (kind == ATTENTION_FORWARD)
        return kernels->attention_forward(&asked->problem.forward, NULL);
    if (kind == ATTENTION_BACKWARD)
        return kernels->attention_backward(&asked->problem, NULL);
    if (kind == GRAPH_FORWARD)
        return kernels->graph_forward(&asked->graph.forward, NULL);
    return kernels->graph_backward(&asked->graph, NULL);
}

static void
answer(request *asked, rp_status status)
{
    int64_t said = status;
    fwrite(&said, sizeof said, 1, stdout);
    for (int64_t i = 0; i < asked->head.arrays; i++) {
        sent_array *array = &asked->arrays[i];
        if (array->head.is_written)
            fwrite(array->data, 1, array->bytes, stdout);
        free(array->data);
        free(array->batch);
    }
    fflush(stdout);
}

static const rp_isa *
find_isa(const char *name)
{
    for (int i = 0; name != NULL && i < RP_ISAS; i++)
        if (strcmp(rp_isas[i].name, name) == 0)
            return &rp_isas[i];
    if (name != NULL)
        stop("no such instruction set");
    return rp_best_isa();
}

int
main(int argc, char **argv)
{
    const rp_isa *isa = find_isa(argc > 1 ? argv[1] : NULL);
    static request asked, nothing;
    while (fread(&asked.head, sizeof asked.head, 1, stdin) == 1) {
        if (asked.head.magic != MAGIC || asked.head.arrays > MOST_ARRAYS)
            stop("this is no problem, or one of another byte order");
        for (int64_t i = 0; i < asked.head.arrays; i++)
            read_array(&asked, &asked.arrays[i]);
        rp_status status = run(isa, &asked);
        answer(&asked, status);
        asked = nothing;
    }
    return rp_live_blocks() == 0 ? 0 : 1;
}

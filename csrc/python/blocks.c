/* blocks.c: results as tensors of torch over memory of relpos, without a link to torch. A block
 * of memory has DLPack's struct, shape and strides before its numbers. torch frees it, whether or
 * not the thread that does has the interpreter's lock. */
#include "dlpack.h"
#include "module.h"

enum { LINE = 64 }; /* bytes: where the numbers begin */

typedef struct {
    dl_managed managed; /* first: torch frees the block by its address */
    int64_t lengths[NPY_MAXDIMS], steps[NPY_MAXDIMS];  /* of the tensor; in items */
    npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS]; /* of the view; in bytes */
    size_t bytes;
} block_t;

/* Written once, when relpos.torch is imported; NULL where torch takes no memory of others. */
static int (*make_tensor)(dl_managed *, void **);

void
know_giver(const dl_table *table)
{
    make_tensor = table == NULL ? NULL : table->give;
}

int
can_give_tensors(void)
{
    return make_tensor != NULL;
}

static void
free_managed(dl_managed *managed)
{
    rp_free(managed);
}

static char *
numbers_of(block_t *block)
{
    return (char *)block + (sizeof *block + LINE - 1) / LINE * LINE;
}

/* Bytes of so many items of a size, and strides by which the last axis is contiguous, or the axis
 * before the last two lies inside of the next; 0 where they are more than memory has. */
static int
find_strides(int ndim, const npy_intp *shape, int itemsize, int is_exchanged,
             npy_intp *strides, size_t *bytes)
{
    *bytes = (size_t)itemsize;
    for (int n = ndim - 1; n >= 0; n--) {
        int axis = n;
        if (is_exchanged && n >= ndim - 3 && n < ndim - 1)
            axis = n == ndim - 3 ? ndim - 2 : ndim - 3;
        strides[axis] = (npy_intp)*bytes;
        if (!rp_multiply(*bytes, (size_t)(shape[axis] > 0 ? shape[axis] : 1), bytes) ||
            *bytes > PTRDIFF_MAX / 2)
            return 0;
    }
    return 1;
}

void *
new_block(int ndim, const npy_intp *shape, int kind, int is_exchanged, array_view *view)
{
    static const uint8_t codes[] = {
        [KIND_F16] = 2, [KIND_BF16] = 4, [KIND_F32] = 2, [KIND_F64] = 2};
    int itemsize = kind == KIND_F64 ? 8 : kind == KIND_F32 ? 4 : 2;
    npy_intp strides[NPY_MAXDIMS];
    size_t bytes;
    block_t *block;
    if (!find_strides(ndim, shape, itemsize, is_exchanged, strides, &bytes) ||
        (block = rp_alloc(1, (size_t)(numbers_of(NULL) - (char *)NULL) + bytes)) ==
            NULL)
        return NULL;
    block->bytes = bytes;
    for (int axis = 0; axis < ndim; axis++) {
        block->shape[axis] = block->lengths[axis] = shape[axis];
        block->strides[axis] = strides[axis];
        block->steps[axis] = strides[axis] / itemsize;
    }
    block->managed = (dl_managed){.major = 1,
                                  .free = free_managed,
                                  .tensor = {.data = numbers_of(block),
                                             .device_type = DL_CPU,
                                             .ndim = ndim,
                                             .code = codes[kind],
                                             .bits = (uint8_t)(8 * itemsize),
                                             .lanes = 1,
                                             .shape = block->lengths,
                                             .strides = block->steps}};
    *view = (array_view){.data = numbers_of(block),
                         .shape = block->shape,
                         .strides = block->strides,
                         .ndim = ndim,
                         .kind = kind,
                         .itemsize = itemsize,
                         .is_behaved = 1,
                         .is_writeable = 1,
                         .owner = Py_NewRef(Py_None)};
    return block;
}

void
clear_block(void *block)
{
    memset(numbers_of(block), 0, ((block_t *)block)->bytes);
}

PyObject *
give_tensor(void *block)
{
    void *object = NULL;
    return make_tensor(&((block_t *)block)->managed, &object) < 0 ? NULL : object;
}

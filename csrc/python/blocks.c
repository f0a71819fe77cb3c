/* blocks.c: results as tensors of torch over memory of relpos, without a link to torch. A block
 * of memory has DLPack's struct, shape and strides before its numbers. torch frees it, whether or
 * not the thread that does has the interpreter's lock. */
#include "dlpack.h"
#include "module.h"

enum { MOST_RESULT_AXES = MOST_BATCH_AXES + 3 };

/* npy_intp and int64_t are different types where long is not long long, so that NumPy and DLPack
 * have arrays of their own. */
typedef struct {
    dl_managed managed; /* first: torch frees the block by its address */
    int64_t lengths[MOST_RESULT_AXES], steps[MOST_RESULT_AXES];  /* in items */
    npy_intp shape[MOST_RESULT_AXES], strides[MOST_RESULT_AXES]; /* in bytes */
    size_t bytes;
} block_t;

/* Bytes before the numbers, which begin with a line of the cache. */
enum { LINE = 64, HEAD = (sizeof(block_t) + LINE - 1) / LINE * LINE };

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
    return (char *)block + HEAD;
}

/* Finds the bytes and the strides of a contiguous array, in whose memory the axes of heads and
 * rows may be exchanged; 0 where no memory has so many bytes. */
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
    npy_intp strides[MOST_RESULT_AXES];
    size_t bytes;
    block_t *block;
    if (!find_strides(ndim, shape, itemsize, is_exchanged, strides, &bytes) ||
        (block = rp_alloc(1, HEAD + bytes)) == NULL)
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
    /* on failure torch may have freed the block already: it is left alone */
    return make_tensor(&((block_t *)block)->managed, &object) < 0 ? NULL : object;
}

/* dlpack.h: DLPack's own declarations, of version 1: a tensor as C sees it, one that somebody has
 * to free, and the table of functions that torch.Tensor has. */
#ifndef RELPOS_DLPACK_H
#define RELPOS_DLPACK_H

#include <stdint.h>

typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* in items */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    uint32_t major, minor;
    void *context;
    void (*free)(struct dl_managed *managed);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed;

typedef struct {
    uint32_t major, minor;
    void *previous;
    int (*others[2])(void);
    /* makes an object, which has the managed tensor from then on */
    int (*give)(dl_managed *managed, void **object);
    /* of what the object keeps; may be NULL */
    int (*view)(void *object, dl_tensor *tensor);
} dl_table;

enum { DL_CPU = 1 };

/* blocks.c: learns how tensors are made, from a table or NULL. */
void know_giver(const dl_table *table);

#endif

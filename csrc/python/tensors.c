/* tensors.c: tensors of torch as ndarrays over their memory, without a link to torch.
 *
 * torch.Tensor has a table of C functions (DLPack 1.3), one of which says where the numbers of
 * a tensor lie. It does not say all: a tensor whose sign is still to be changed comes as if
 * it had none, one of a subclass as plain, one on another device with that device's
 * address. What is not certain here is left to a function of Python. */
#include "dlpack.h"
#include "module.h"

enum { MOST_AXES = 32 };

static const struct {
    int code, bits, type;
} kinds[] = {
    {2, 32, NPY_FLOAT32}, {2, 64, NPY_FLOAT64}, {2, 16, NPY_HALF},
    {4, 16, NPY_VOID},    {6, 8, NPY_BOOL},     {0, 8, NPY_INT8},
    {0, 16, NPY_INT16},   {0, 32, NPY_INT32},   {0, 64, NPY_INT64},
};

enum { KINDS = sizeof kinds / sizeof *kinds, TENSOR_TYPES = 2 };

static PyObject *tensor_types[TENSOR_TYPES]; /* Tensor and Parameter; NULL: not known */
static int (*tell_tensor)(void *, dl_tensor *);
static PyObject *is_neg, *storage_offset;

/* NumPy's type; -1 for one that has no place in the list. */
static int
type_of(const dl_tensor *tensor)
{
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].code == tensor->code && kinds[i].bits == tensor->bits)
            return kinds[i].type;
    return -1;
}

/* Whether the memory of a tensor with elements is there, and as its view says: a storage
 * that was resized to nothing begins at address 0. -1 with an error. */
static int
has_numbers(PyObject *value, const dl_tensor *tensor)
{
    PyObject *negative = PyObject_CallMethodObjArgs(value, is_neg, NULL), *offset;
    int plain = negative == Py_False;
    Py_XDECREF(negative);
    if (!plain)
        return negative == NULL ? -1 : 0;
    if ((offset = PyObject_CallMethodObjArgs(value, storage_offset, NULL)) == NULL)
        return -1;
    uint64_t begin = (uint64_t)PyLong_AsLongLong(offset) * (tensor->bits / 8);
    Py_DECREF(offset);
    if (PyErr_Occurred())
        return -1;
    return tensor->data != NULL &&
           (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset != begin;
}

/* The array; NULL with or without an error where there is none. */
static PyObject *
new_array(PyObject *value, const dl_tensor *tensor, int type)
{
    npy_intp shape[MOST_AXES], strides[MOST_AXES], size = tensor->bits / 8, count = 1;
    char *data = (char *)tensor->data + tensor->byte_offset;
    for (int axis = 0; axis < tensor->ndim; axis++) {
        shape[axis] = (npy_intp)tensor->shape[axis];
        strides[axis] = (npy_intp)((size_t)tensor->strides[axis] * (size_t)size);
        count = shape[axis] == 0 ? 0 : count;
    }
    if (count == 0) /* no memory: NumPy has some of its own */
        return PyArray_SimpleNewFromDescr(tensor->ndim, shape, descr_of(type));
    if (has_numbers(value, tensor) <= 0)
        return NULL;
    PyObject *array =
        PyArray_NewFromDescr(&PyArray_Type, descr_of(type), tensor->ndim, shape,
                             strides, data, NPY_ARRAY_WRITEABLE, NULL);
    if (array != NULL &&
        PyArray_SetBaseObject((PyArrayObject *)array, Py_NewRef(value)) < 0)
        Py_CLEAR(array);
    return array;
}

/* Whether a value is a plain tensor that can be read here. */
static int
is_tensor(PyObject *value)
{
    PyObject *kind = (PyObject *)Py_TYPE(value);
    return tell_tensor != NULL && (kind == tensor_types[0] || kind == tensor_types[1]);
}

PyObject *
view_tensor(PyObject *value)
{
    dl_tensor tensor;
    PyObject *array = NULL;
    if (!is_tensor(value))
        return NULL;
    if (tell_tensor(value, &tensor) == 0 && tensor.device_type == DL_CPU &&
        tensor.lanes == 1 && tensor.ndim <= MOST_AXES && type_of(&tensor) >= 0)
        array = new_array(value, &tensor, type_of(&tensor));
    if (array == NULL)
        PyErr_Clear();
    return array;
}

/* A tensor that takes other memory frees its own, unless another tensor has it too. */
int
is_current(PyObject *value)
{
    PyArrayObject *array = (PyArrayObject *)value;
    PyObject *base = PyArray_BASE(array);
    while (base != NULL && PyArray_Check(base)) {
        array = (PyArrayObject *)base;
        base = PyArray_BASE(array);
    }
    dl_tensor tensor;
    if (base == NULL || !is_tensor(base) || PyArray_SIZE(array) == 0)
        return 1;
    return tell_tensor(base, &tensor) == 0 &&
           (char *)tensor.data + tensor.byte_offset == PyArray_BYTES(array);
}

/* A view of a tensor, as `view_tensor`; NULL also for 16 bits, which not all may read. */
static PyObject *
view_wide_tensor(PyObject *value)
{
    PyObject *array = view_tensor(value);
    int type = array == NULL ? NPY_FLOAT : PyArray_TYPE((PyArrayObject *)array);
    if (type == NPY_HALF || type == NPY_VOID)
        Py_CLEAR(array);
    return array;
}

/* Adds the array of one value to a dict. */
static int
read_value(PyObject *arrays, PyObject *name, PyObject *value, PyObject *other)
{
    if (name == NULL || value == NULL)
        return -1;
    PyObject *array = view_wide_tensor(value);
    if (array == NULL)
        array = PyObject_CallFunctionObjArgs(other, name, value, NULL);
    int status = array == NULL ? -1 : PyDict_SetItem(arrays, name, array);
    Py_XDECREF(array);
    return status;
}

/* Raises where reading one value, which may run Python code, has changed another one. */
static int
check_current(PyObject *arrays)
{
    PyObject *name, *array;
    for (Py_ssize_t at = 0; PyDict_Next(arrays, &at, &name, &array);)
        if (PyArray_Check(array) && !is_current(array)) {
            refuse_moved(PyUnicode_AsUTF8(name));
            return -1;
        }
    return 0;
}

PyObject *
py_read_tensors(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t values =
        count == 3 && PyTuple_Check(args[0]) ? PyTuple_Size(args[0]) : -1;
    if (values < 0 || PySequence_Size(args[1]) != values) {
        PyErr_Clear();
        PyErr_SetString(PyExc_TypeError,
                        "read_tensors: expected names, as many values, and a function");
        return NULL;
    }
    PyObject *arrays = PyDict_New();
    for (Py_ssize_t i = 0; arrays != NULL && i < values; i++) {
        PyObject *value = PySequence_GetItem(args[1], i);
        if (value != Py_None &&
            read_value(arrays, PyTuple_GetItem(args[0], i), value, args[2]) < 0)
            Py_CLEAR(arrays);
        Py_XDECREF(value);
    }
    if (arrays != NULL && check_current(arrays) < 0)
        Py_CLEAR(arrays);
    return arrays;
}

/* The table of a type that has one of version 1; NULL elsewhere. */
static const dl_table *
table_of(PyObject *type)
{
    PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    const dl_table *table =
        capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_XDECREF(capsule);
    PyErr_Clear();
    return table != NULL && table->major == 1 ? table : NULL;
}

PyObject *
py_know_tensors(PyObject *Py_UNUSED(module), PyObject *const *types, Py_ssize_t count)
{
    if (count != TENSOR_TYPES) {
        PyErr_SetString(PyExc_TypeError, "know_tensors: expected two types");
        return NULL;
    }
    is_neg = PyUnicode_InternFromString("is_neg");
    storage_offset = PyUnicode_InternFromString("storage_offset");
    if (is_neg == NULL || storage_offset == NULL)
        return NULL;
    for (int i = 0; i < TENSOR_TYPES; i++)
        tensor_types[i] = Py_NewRef(types[i]); /* for good, as all of them */
    const dl_table *table = table_of(types[0]);
    tell_tensor = table == NULL ? NULL : table->view;
    know_giver(table);
    return PyBool_FromLong(tell_tensor != NULL);
}

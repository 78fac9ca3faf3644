/* An optional decoder of events: Avro bytes to instances of the event classes.
 *
 * codec.py is the reference. This module decodes a record exactly as codec.py does, or returns None,
 * and codec.py then decodes the record itself: whatever is rare (an array of several blocks, a
 * varint of ten bytes) or wrong (bytes that end early, a number out of bounds, invalid UTF-8) is
 * left to it. So every error has one source, and this file raises nothing about a record.
 *
 * A schema is compiled to a program, a tree of nodes, which compiled.py describes in tuples:
 *
 *     ("long", low, high)  ("boolean",)  ("bytes",)  ("string",)  ("enum", (symbol, ...))
 *     ("optional", node)                       a union of null and one other type
 *     ("array", node)                          becomes a tuple
 *     ("record", class, ((field, node), ...), ((field, constant), ...))
 *
 * A record's fields are decoded in the order in which they were written; a field with a constant is
 * not in the bytes. An instance is created as object.__new__ creates it, and each field is stored
 * where the class's __slots__ have it, so a class must be a dataclass with slots, without bases,
 * __new__, __post_init__ and __del__. Constants and symbols are shared by all events: they must be immutable.
 *
 * Bytes are read in one place each (take, read_long), both of which compare with the end. The depth
 * of the recursion is that of the program, not of the data.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdint.h>
#include <string.h>

#define FORMAT 1 /* of the descriptions above; compiled.py has the same number */
#define MAGIC_0 0xC3
#define MAGIC_1 0x01
#define FINGERPRINT_BYTES 8
#define HEAD_BYTES (2 + FINGERPRINT_BYTES)
#define DEPTH_MAX 16
#define FIELDS_MAX 256

typedef enum { LONG, BOOLEAN, BYTES, STRING, ENUM, OPTIONAL, ARRAY, RECORD } Kind;

typedef struct Node {
    Kind kind;
    int64_t low, high;      /* LONG */
    PyTypeObject *cls;      /* RECORD */
    Py_ssize_t count;       /* children, see below */
    struct Node **nodes;    /* OPTIONAL, ARRAY: one; RECORD: one for each field in the bytes */
    Py_ssize_t *offsets;    /* RECORD: where an instance holds each field, then each constant */
    Py_ssize_t values_count;
    PyObject **values;      /* ENUM: the symbols; RECORD: the constants */
} Node;

typedef struct {
    const unsigned char *at, *end;
} Input;

/* ---- decoding: NULL means that codec.py has to decode the record --------------------------- */

/* The next `size` bytes, or NULL if there are fewer. */
static const unsigned char *
take(Input *in, int64_t size)
{
    const unsigned char *start = in->at;
    if (size < 0 || size > (int64_t)(in->end - in->at)) {
        return NULL;
    }
    in->at += size;
    return start;
}

/* A zigzag varint of at most nine bytes, so of 63 bits; 0 if there is none. */
static int
read_long(Input *in, int64_t *number)
{
    uint64_t bits = 0;
    for (int shift = 0; shift < 63; shift += 7) {
        const unsigned char *byte = take(in, 1);
        if (byte == NULL) {
            return 0;
        }
        bits |= (uint64_t)(*byte & 0x7F) << shift;
        if ((*byte & 0x80) == 0) {
            int64_t half = (int64_t)(bits >> 1);
            *number = (bits & 1) ? -half - 1 : half;
            return 1;
        }
    }
    return 0;
}

/* The bytes of a text or of bytes, after their length. */
static const unsigned char *
read_sized(Input *in, int64_t *size)
{
    return read_long(in, size) ? take(in, *size) : NULL;
}

static PyObject *read_value(const Node *node, Input *in);

static PyObject *
read_array(const Node *item, Input *in)
{
    int64_t count, more;
    if (!read_long(in, &count)) {
        return NULL;
    }
    if (count == 0) {
        return PyTuple_New(0);
    }
    /* An item has at least one byte, and the end of the array follows. So the tuple is never larger
     * than the bytes justify. */
    if (count < 0 || count >= (int64_t)(in->end - in->at)) {
        return NULL;
    }
    PyObject *items = PyTuple_New((Py_ssize_t)count);
    if (items == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < (Py_ssize_t)count; i++) {
        PyObject *value = read_value(item, in);
        if (value == NULL) {
            Py_DECREF(items);
            return NULL;
        }
        PyTuple_SET_ITEM(items, i, value);
    }
    if (!read_long(in, &more) || more != 0) {
        Py_DECREF(items);
        return NULL;
    }
    return items;
}

static PyObject *
read_record(const Node *node, Input *in)
{
    PyObject *event = PyType_GenericAlloc(node->cls, 0);
    if (event == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < node->count; i++) {
        PyObject *value = read_value(node->nodes[i], in);
        if (value == NULL) {
            Py_DECREF(event); /* a slot may be empty when an instance is deleted */
            return NULL;
        }
        *(PyObject **)((char *)event + node->offsets[i]) = value;
    }
    for (Py_ssize_t i = 0; i < node->values_count; i++) {
        Py_INCREF(node->values[i]);
        *(PyObject **)((char *)event + node->offsets[node->count + i]) = node->values[i];
    }
    return event;
}

static PyObject *
read_value(const Node *node, Input *in)
{
    int64_t number;
    const unsigned char *start;

    switch (node->kind) {
    case LONG:
        if (!read_long(in, &number) || number < node->low || number > node->high) {
            return NULL;
        }
        return PyLong_FromLongLong(number);
    case BOOLEAN:
        start = take(in, 1);
        return start == NULL || *start > 1 ? NULL : PyBool_FromLong(*start);
    case BYTES:
        start = read_sized(in, &number);
        return start == NULL ? NULL
                             : PyBytes_FromStringAndSize((const char *)start, (Py_ssize_t)number);
    case STRING:
        start = read_sized(in, &number);
        return start == NULL ? NULL
                             : PyUnicode_DecodeUTF8((const char *)start, (Py_ssize_t)number, NULL);
    case ENUM:
        if (!read_long(in, &number) || number < 0 || number >= (int64_t)node->values_count) {
            return NULL;
        }
        Py_INCREF(node->values[number]);
        return node->values[number];
    case OPTIONAL:
        if (!read_long(in, &number) || number < 0 || number > 1) {
            return NULL;
        }
        if (number == 0) {
            Py_RETURN_NONE;
        }
        return read_value(node->nodes[0], in);
    case ARRAY:
        return read_array(node->nodes[0], in);
    case RECORD:
        return read_record(node, in);
    }
    return NULL;
}

/* ---- programs: what is wrong with a description raises ValueError --------------------------- */

static void
node_free(Node *node)
{
    if (node == NULL) {
        return;
    }
    if (node->nodes != NULL) {
        for (Py_ssize_t i = 0; i < node->count; i++) {
            node_free(node->nodes[i]);
        }
    }
    if (node->values != NULL) {
        for (Py_ssize_t i = 0; i < node->values_count; i++) {
            Py_XDECREF(node->values[i]);
        }
    }
    Py_XDECREF(node->cls);
    PyMem_Free(node->nodes);
    PyMem_Free(node->values);
    PyMem_Free(node->offsets);
    PyMem_Free(node);
}

static Node *
wrong(Node *node, const char *what)
{
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, what);
    }
    node_free(node);
    return NULL;
}

/* The offset of a field in an instance, or -1: only a field of the class's own __slots__ has one. */
static Py_ssize_t
slot_offset(PyTypeObject *cls, PyObject *field)
{
    PyObject *found = PyObject_GetAttr((PyObject *)cls, field);
    Py_ssize_t offset = -1;
    if (found != NULL && Py_IS_TYPE(found, &PyMemberDescr_Type) && PyDescr_TYPE(found) == cls) {
        const PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        if (member->type == T_OBJECT_EX && member->flags == 0 && member->offset > 0 &&
            member->offset + (Py_ssize_t)sizeof(PyObject *) <= cls->tp_basicsize) {
            offset = member->offset;
        }
    }
    Py_XDECREF(found);
    PyErr_Clear();
    return offset;
}

static Node *node_from(PyObject *description, int depth);

/* Adds the field (name, child or constant) to a record. 1: added. */
static int
add_field(Node *node, Py_ssize_t place, PyObject *pair, int depth, int is_constant)
{
    if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2 ||
        !PyUnicode_CheckExact(PyTuple_GET_ITEM(pair, 0))) {
        return 0;
    }
    Py_ssize_t offset = slot_offset(node->cls, PyTuple_GET_ITEM(pair, 0));
    if (offset < 0) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < place; i++) {
        if (node->offsets[i] == offset) {
            return 0; /* twice */
        }
    }
    node->offsets[place] = offset;
    if (is_constant) {
        Py_INCREF(PyTuple_GET_ITEM(pair, 1));
        node->values[place - node->count] = PyTuple_GET_ITEM(pair, 1);
        return 1;
    }
    node->nodes[place] = node_from(PyTuple_GET_ITEM(pair, 1), depth);
    return node->nodes[place] != NULL;
}

static Node *
record_from(Node *node, PyObject *description, int depth)
{
    PyObject *cls, *fields, *constants;
    if (!PyArg_ParseTuple(description, "OO!O!O!;a record", &cls, &PyType_Type, &cls, &PyTuple_Type,
                          &fields, &PyTuple_Type, &constants)) {
        return wrong(node, "");
    }
    PyTypeObject *type = (PyTypeObject *)cls;
    /* Only what object.__new__ does: no arguments, no state besides the slots. */
    if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || type->tp_base != &PyBaseObject_Type ||
        type->tp_new != PyBaseObject_Type.tp_new || type->tp_alloc != PyType_GenericAlloc ||
        type->tp_itemsize != 0 || type->tp_dictoffset != 0 || type->tp_finalize != NULL) {
        return wrong(node, "a record needs a class that has only __slots__");
    }
    Py_INCREF(cls);
    node->cls = type;
    Py_ssize_t written = PyTuple_GET_SIZE(fields), total = written + PyTuple_GET_SIZE(constants);
    if (total > FIELDS_MAX) {
        return wrong(node, "a record with too many fields");
    }
    node->offsets = PyMem_Calloc(total + 1, sizeof(Py_ssize_t));
    node->nodes = PyMem_Calloc(written + 1, sizeof(Node *));
    node->values = PyMem_Calloc(total - written + 1, sizeof(PyObject *));
    if (node->offsets == NULL || node->nodes == NULL || node->values == NULL) {
        PyErr_NoMemory();
        return wrong(node, "");
    }
    node->count = written;
    node->values_count = total - written;
    for (Py_ssize_t i = 0; i < total; i++) {
        PyObject *pair = i < written ? PyTuple_GET_ITEM(fields, i)
                                     : PyTuple_GET_ITEM(constants, i - written);
        if (!add_field(node, i, pair, depth, i >= written)) {
            return wrong(node, "a field that is no slot of its class, or twice");
        }
    }
    return node;
}

static Node *
enum_from(Node *node, PyObject *description)
{
    PyObject *kind, *symbols;
    if (!PyArg_ParseTuple(description, "OO!;an enum", &kind, &PyTuple_Type, &symbols)) {
        return wrong(node, "");
    }
    node->values = PyMem_Calloc(PyTuple_GET_SIZE(symbols) + 1, sizeof(PyObject *));
    if (node->values == NULL) {
        PyErr_NoMemory();
        return wrong(node, "");
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(symbols); i++) {
        PyObject *symbol = PyTuple_GET_ITEM(symbols, i);
        if (!PyUnicode_CheckExact(symbol)) {
            return wrong(node, "a symbol that is no text");
        }
        Py_INCREF(symbol);
        node->values[i] = symbol;
        node->values_count = i + 1;
    }
    return node;
}

static Node *
wrapped_from(Node *node, PyObject *description, int depth)
{
    PyObject *kind, *inner;
    if (!PyArg_ParseTuple(description, "OO;one inner type", &kind, &inner)) {
        return wrong(node, "");
    }
    node->nodes = PyMem_Calloc(1, sizeof(Node *));
    if (node->nodes == NULL) {
        PyErr_NoMemory();
        return wrong(node, "");
    }
    node->count = 1;
    node->nodes[0] = node_from(inner, depth);
    if (node->nodes[0] == NULL) {
        return wrong(node, "");
    }
    return node;
}

static Node *
node_from(PyObject *description, int depth)
{
    static const char *const names[] = {"long",     "boolean", "bytes", "string", "enum",
                                        "optional", "array",   "record"};
    if (depth >= DEPTH_MAX || !PyTuple_CheckExact(description) ||
        PyTuple_GET_SIZE(description) < 1 ||
        !PyUnicode_CheckExact(PyTuple_GET_ITEM(description, 0))) {
        return wrong(NULL, "not the description of a type, or nested too deeply");
    }
    PyObject *name = PyTuple_GET_ITEM(description, 0);
    int kind = 0;
    while (kind <= RECORD && PyUnicode_CompareWithASCIIString(name, names[kind]) != 0) {
        kind++;
    }
    Node *node = kind > RECORD ? NULL : PyMem_Calloc(1, sizeof(Node));
    if (node == NULL) {
        if (kind <= RECORD) {
            PyErr_NoMemory();
        }
        return wrong(NULL, "an unknown type");
    }
    node->kind = (Kind)kind;
    switch (node->kind) {
    case LONG: {
        PyObject *first;
        long long low, high;
        if (!PyArg_ParseTuple(description, "OLL;a long", &first, &low, &high)) {
            return wrong(node, "");
        }
        node->low = low;
        node->high = high;
        return node;
    }
    case BOOLEAN:
    case BYTES:
    case STRING:
        return node;
    case ENUM:
        return enum_from(node, description);
    case OPTIONAL:
    case ARRAY:
        return wrapped_from(node, description, depth + 1);
    case RECORD:
        return record_from(node, description, depth + 1);
    }
    return wrong(node, "an unknown type");
}

/* ---- the decoder: programs by fingerprint ---------------------------------------------------- */

typedef struct {
    unsigned char fingerprint[FINGERPRINT_BYTES];
    Node *program;
} Row;

typedef struct {
    PyObject_HEAD
    Row *rows; /* an open hash table; a row without a program is free */
    size_t size, used; /* size: a power of two, at least twice `used` */
} Decoder;

/* The row of a fingerprint, or the free row where it belongs. A fingerprint is a hash itself. */
static Row *
row_of(Row *rows, size_t size, const unsigned char *fingerprint)
{
    uint64_t hash;
    memcpy(&hash, fingerprint, sizeof hash);
    size_t place = (size_t)(hash ^ (hash >> 32)) & (size - 1);
    while (rows[place].program != NULL &&
           memcmp(rows[place].fingerprint, fingerprint, FINGERPRINT_BYTES) != 0) {
        place = (place + 1) & (size - 1);
    }
    return &rows[place];
}

static int
grow(Decoder *self)
{
    size_t size = self->size ? self->size * 2 : 64;
    Row *rows = PyMem_Calloc(size, sizeof(Row));
    if (rows == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (size_t i = 0; i < self->size; i++) {
        if (self->rows[i].program != NULL) {
            *row_of(rows, size, self->rows[i].fingerprint) = self->rows[i];
        }
    }
    PyMem_Free(self->rows);
    self->rows = rows;
    self->size = size;
    return 1;
}

PyDoc_STRVAR(add_doc,
"add(fingerprint, program)\n--\n\n"
"Adds the program of a schema, by the 8 bytes of its fingerprint. Raises ValueError or TypeError if\n"
"it cannot be run, or if the fingerprint has one. A program stays as long as the decoder.");

static PyObject *
decoder_add(Decoder *self, PyObject *args)
{
    const char *fingerprint;
    Py_ssize_t size;
    PyObject *description;
    if (!PyArg_ParseTuple(args, "y#O:add", &fingerprint, &size, &description)) {
        return NULL;
    }
    if (size != FINGERPRINT_BYTES) {
        PyErr_SetString(PyExc_ValueError, "a fingerprint has 8 bytes");
        return NULL;
    }
    Node *program = node_from(description, 0);
    if (program == NULL) {
        return NULL;
    }
    if (program->kind != RECORD) {
        wrong(program, "an event is a record");
        return NULL;
    }
    if (2 * (self->used + 1) > self->size && !grow(self)) {
        node_free(program);
        return NULL;
    }
    Row *row = row_of(self->rows, self->size, (const unsigned char *)fingerprint);
    if (row->program != NULL) {
        wrong(program, "this fingerprint has a program");
        return NULL;
    }
    memcpy(row->fingerprint, fingerprint, FINGERPRINT_BYTES);
    row->program = program;
    self->used++;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(decode_doc,
"decode(value)\n--\n\n"
"The event in a record's value, or None if the reference has to decode it.");

static PyObject *
decoder_decode(Decoder *self, PyObject *value)
{
    if (self->used == 0 || !PyBytes_CheckExact(value) || PyBytes_GET_SIZE(value) < HEAD_BYTES) {
        Py_RETURN_NONE;
    }
    const unsigned char *bytes = (const unsigned char *)PyBytes_AS_STRING(value);
    if (bytes[0] != MAGIC_0 || bytes[1] != MAGIC_1) {
        Py_RETURN_NONE;
    }
    /* Allocating an event may run other Python code, and that may add programs: a row may move,
     * the program of a row does not. */
    const Node *program = row_of(self->rows, self->size, bytes + 2)->program;
    if (program == NULL) {
        Py_RETURN_NONE;
    }
    Input in = {bytes + HEAD_BYTES, bytes + PyBytes_GET_SIZE(value)};
    PyObject *event = read_value(program, &in);
    if (event != NULL && in.at == in.end) {
        return event;
    }
    Py_XDECREF(event);
    PyErr_Clear();
    Py_RETURN_NONE;
}

static void
decoder_dealloc(Decoder *self)
{
    PyTypeObject *type = Py_TYPE(self);
    for (size_t i = 0; i < self->size; i++) {
        node_free(self->rows[i].program);
    }
    PyMem_Free(self->rows);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef decoder_methods[] = {
    {"add", (PyCFunction)decoder_add, METH_VARARGS, add_doc},
    {"decode", (PyCFunction)decoder_decode, METH_O, decode_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot decoder_slots[] = {
    {Py_tp_doc, "Decodes the values of records whose schemas it has programs for."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, decoder_dealloc},
    {Py_tp_methods, decoder_methods},
    {0, NULL},
};

static PyType_Spec decoder_spec = {
    "foldlog.schemas._decoder.Decoder", sizeof(Decoder), 0, Py_TPFLAGS_DEFAULT, decoder_slots,
};

static int
module_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&decoder_spec);
    if (type == NULL) {
        return -1;
    }
    int failed = PyModule_AddObjectRef(module, "Decoder", type);
    Py_DECREF(type);
    return failed < 0 ? -1 : PyModule_AddIntConstant(module, "FORMAT", FORMAT);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_decoder",
    .m_doc = "An optional decoder of events; see compiled.py.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__decoder(void)
{
    return PyModuleDef_Init(&module_definition);
}

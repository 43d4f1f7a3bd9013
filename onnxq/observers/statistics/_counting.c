/* Counts the upper halves of float32 numbers, page by page (see counting.py), without holding the interpreter lock. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define PAGE 128
#define PAGES 512
#define PATTERNS (PAGE * PAGES)
#define FEW 16384

/* Two counters in turn: a run of equal values (the zeros of a Relu) would wait for its own last addition. */
static void count_all(const uint32_t *restrict bits, Py_ssize_t size, uint32_t *restrict even, uint32_t *restrict odd)
{
    Py_ssize_t i = 0;
    for (; i + 1 < size; i += 2) {
        even[bits[i] >> 16] += 1;
        odd[bits[i + 1] >> 16] += 1;
    }
    if (i < size)
        even[bits[i] >> 16] += 1;
}

/* Which pages may be occupied. All of them, for many values; for few, looking through all counters (half a megabyte)
 * would take longer than counting. */
static void find_pages(const uint32_t *bits, Py_ssize_t size, uint8_t *maybe)
{
    memset(maybe, size > FEW, PAGES);
    if (size > FEW)
        return;
    for (Py_ssize_t i = 0; i < size; i++)
        maybe[bits[i] >> 23] = 1;
    maybe[0] |= maybe[PAGES / 2]; /* minus zero */
}

/* Moves the occupied pages into the table and leaves the counters zero for the next call.
 * Minus zero counts as zero; the last page of either sign (NaN and infinities) is left out. */
static Py_ssize_t take_pages(uint32_t *even, uint32_t *odd, const uint8_t *maybe, int64_t *pages, int64_t *table)
{
    Py_ssize_t used = 0;
    even[0] += even[PATTERNS / 2];
    odd[0] += odd[PATTERNS / 2];
    even[PATTERNS / 2] = odd[PATTERNS / 2] = 0;
    for (Py_ssize_t page = 0; page < PAGES; page++, even += PAGE, odd += PAGE) {
        if (!maybe[page])
            continue;
        uint32_t occupied = 0;
        for (int k = 0; k < PAGE; k++)
            occupied |= even[k] | odd[k];
        if (!occupied)
            continue;
        pages[used] = page;
        for (int k = 0; k < PAGE; k++) {
            table[used * PAGE + k] = (int64_t)even[k] + (int64_t)odd[k];
            even[k] = odd[k] = 0;
        }
        if (page % (PAGES / 2) != PAGES / 2 - 1)
            used++;
    }
    return used;
}

static PyObject *count(PyObject *self, PyObject *args)
{
    Py_buffer values, counters, pages, table;
    if (!PyArg_ParseTuple(args, "y*w*w*w*", &values, &counters, &pages, &table))
        return NULL;
    Py_ssize_t used = -1;
    if (counters.len < (Py_ssize_t)(2 * PATTERNS * sizeof(uint32_t)) ||
        pages.len < (Py_ssize_t)(PAGES * sizeof(int64_t)) ||
        table.len < (Py_ssize_t)(PATTERNS * sizeof(int64_t)))
        PyErr_SetString(PyExc_ValueError, "the working memory is too small");
    else {
        uint32_t *even = counters.buf, *odd = even + PATTERNS;
        Py_ssize_t size = values.len / (Py_ssize_t)sizeof(uint32_t);
        uint8_t maybe[PAGES];
        Py_BEGIN_ALLOW_THREADS
        count_all(values.buf, size, even, odd);
        find_pages(values.buf, size, maybe);
        used = take_pages(even, odd, maybe, pages.buf, table.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&counters);
    PyBuffer_Release(&pages);
    PyBuffer_Release(&table);
    return used < 0 ? NULL : PyLong_FromSsize_t(used);
}

/* Adds a table to the rows of another one whose pages include its own; where they do not, it says no and does nothing. */
static PyObject *add(PyObject *self, PyObject *args)
{
    Py_buffer pages, table, more, counts;
    if (!PyArg_ParseTuple(args, "y*w*y*y*", &pages, &table, &more, &counts))
        return NULL;
    const int64_t *have = pages.buf, *want = more.buf;
    Py_ssize_t rows = pages.len / (Py_ssize_t)sizeof(int64_t), wanted = more.len / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t found = 0;
    if (table.len == rows * PAGE * (Py_ssize_t)sizeof(int64_t) &&
        counts.len == wanted * PAGE * (Py_ssize_t)sizeof(int64_t)) {
        for (Py_ssize_t row = 0; row < rows && found < wanted; row++)
            found += have[row] == want[found];
        if (found == wanted) {
            int64_t *into = table.buf;
            const int64_t *from = counts.buf;
            for (Py_ssize_t i = 0, row = 0; i < wanted; i++, row++) {
                while (have[row] != want[i])
                    row++;
                for (int k = 0; k < PAGE; k++)
                    into[row * PAGE + k] += from[i * PAGE + k];
            }
        }
    }
    PyBuffer_Release(&pages);
    PyBuffer_Release(&table);
    PyBuffer_Release(&more);
    PyBuffer_Release(&counts);
    return PyBool_FromLong(found == wanted);
}

/* Counts small tensors that lie one behind the other into pages of their own, tensor by tensor, until fewer pages are
 * free than one tensor may need. All numbers are finite. */
static PyObject *count_many(PyObject *self, PyObject *args)
{
    Py_buffer values, edges, which, index, pool;
    Py_ssize_t used, done = -1;
    if (!PyArg_ParseTuple(args, "y*y*y*w*w*n", &values, &edges, &which, &index, &pool, &used))
        return NULL;
    const uint32_t *bits = values.buf;
    const int64_t *edge = edges.buf, *wanted = which.buf;
    int32_t *slots = index.buf;
    uint32_t *counts = pool.buf;
    Py_ssize_t size = values.len / (Py_ssize_t)sizeof(uint32_t), count = which.len / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t tensors = index.len / (Py_ssize_t)(PAGES * sizeof(int32_t));
    Py_ssize_t capacity = pool.len / (Py_ssize_t)(PAGE * sizeof(uint32_t));
    int fits = used >= 0 && used <= capacity && edges.len == 2 * tensors * (Py_ssize_t)sizeof(int64_t);
    for (Py_ssize_t i = 0; fits && i < count; i++)
        fits = wanted[i] >= 0 && wanted[i] < tensors && edge[2 * wanted[i]] >= 0 &&
               edge[2 * wanted[i]] <= edge[2 * wanted[i] + 1] && edge[2 * wanted[i] + 1] <= size;
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "the tensors do not lie within these arrays");
    else {
        Py_BEGIN_ALLOW_THREADS
        for (done = 0; done < count && capacity - used >= PAGES; done++) {
            int32_t *slot = slots + wanted[done] * PAGES;
            const uint32_t *at = bits + edge[2 * wanted[done]], *end = bits + edge[2 * wanted[done] + 1];
            for (; at < end; at++) {
                uint32_t pattern = *at >> 16;
                pattern = pattern == PATTERNS / 2 ? 0 : pattern; /* minus zero */
                if (slot[pattern / PAGE] < 0)
                    slot[pattern / PAGE] = (int32_t)used++;
                counts[(Py_ssize_t)slot[pattern / PAGE] * PAGE + pattern % PAGE] += 1;
            }
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&edges);
    PyBuffer_Release(&which);
    PyBuffer_Release(&index);
    PyBuffer_Release(&pool);
    return done < 0 ? NULL : Py_BuildValue("nn", done, used);
}

static PyMethodDef methods[] = {
    {"count", count, METH_VARARGS,
     "count(float32 values, uint32 counters[2, 65536] all zero, int64 pages[512], int64 table[512, 128])\n"
     "-> pages used"},
    {"add", add, METH_VARARGS,
     "add(int64 pages[n], int64 table[n, 128], int64 more[m], int64 counts[m, 128]) -> whether it was done:\n"
     "adds the counts to the table where all of the ascending `more` are among the ascending `pages`"},
    {"count_many", count_many, METH_VARARGS,
     "count_many(float32 values, int64 edges[n, 2], int64 which[m], int32 index[n, 512], uint32 pool[p, 128], used)\n"
     "-> how many of `which` were counted, and pages of the pool used: index is -1 where a tensor has no page yet"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_counting",
    .m_doc = "Counts the upper halves of float32 numbers.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__counting(void)
{
    return PyModule_Create(&module);
}

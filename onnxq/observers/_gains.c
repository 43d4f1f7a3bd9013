/* What the steps of number formats gain on histograms (see expected_error.py), with the bits that numpy computes: every
 * product and sum is rounded, in the order of `Excess.excess` and `_gains`. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    double lower, count, excess, density;
} Cell;

typedef struct {
    const Cell *cells;     /* [of all rows][size] */
    const double *top;     /* [of all rows] */
    Py_ssize_t size;
    Py_ssize_t first;      /* the number of the first bin */
    const double *boundary, *height;
    Py_ssize_t steps;
} Table;

/* Sum of (x - point) over the x of a row that are not below a point. */
static inline double excess(const Cell *cells, double top, Py_ssize_t size, Py_ssize_t first, double point)
{
    double distance = point < top ? point : top;
    float narrow = (float)distance;
    int32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    Py_ssize_t index = (bits >> 16) - first;
    index = index < 0 ? 0 : index < size ? index : size - 1;
    const Cell *cell = cells + index;
    distance -= cell->lower;
    double result = distance > 0.0 ? distance : 0.0;
    result *= result;
    result *= cell->density;
    result *= 0.5;
    distance *= cell->count;
    result -= distance;
    return result + cell->excess;
}

/* For one scale: the gain of each step before its factor of twice the scale, or the gains of the first 0, 1, 2 ... */
static void fill(const Table *table, Py_ssize_t row, double scale, int together, double *out)
{
    const Cell *cells = table->cells + row * table->size;
    double top = table->top[row], sum = 0.0, factor = 2.0 * scale;
    if (together)
        *out++ = 0.0;
    for (Py_ssize_t step = 0; step < table->steps; step++) {
        double gain = excess(cells, top, table->size, table->first, scale * table->boundary[step]);
        gain *= table->height[step];
        if (together) {
            sum = step ? sum + gain : gain;
            gain = sum * factor;
        }
        out[step] = gain;
    }
}

static PyObject *gains(PyObject *self, PyObject *args)
{
    Py_buffer cells, top, rows, scale, boundary, height, out;
    Py_ssize_t first;
    int together;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*npw*", &cells, &top, &rows, &scale, &boundary, &height, &first, &together,
                          &out))
        return NULL;
    const Py_ssize_t number = sizeof(double);
    Py_ssize_t held = top.len / number, lines = rows.len / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t steps = boundary.len / number, scales = scale.len / number, width = steps + (together ? 1 : 0);
    const int64_t *whose = rows.buf;
    int fits = held && lines && scales % lines == 0 && cells.len % (held * (Py_ssize_t)sizeof(Cell)) == 0 &&
               cells.len && height.len == boundary.len && out.len == scales * width * number;
    for (Py_ssize_t line = 0; fits && line < lines; line++)
        fits = whose[line] >= 0 && whose[line] < held;
    if (fits) {
        Table table = {cells.buf, top.buf, cells.len / (held * (Py_ssize_t)sizeof(Cell)), first,
                       boundary.buf, height.buf, steps};
        const double *given = scale.buf;
        double *target = out.buf;
        Py_ssize_t each = scales / lines;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < scales; i++)
            fill(&table, (Py_ssize_t)whose[i / each], given[i], together, target + i * width);
        Py_END_ALLOW_THREADS
    }
    else
        PyErr_SetString(PyExc_ValueError, "the arrays do not fit together");
    PyBuffer_Release(&cells);
    PyBuffer_Release(&top);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&scale);
    PyBuffer_Release(&boundary);
    PyBuffer_Release(&height);
    PyBuffer_Release(&out);
    if (!fits)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"gains", gains, METH_VARARGS,
     "gains(float64 cells[r, n, 4], float64 top[r], int64 rows[l], float64 scale[l, c], float64 boundary[s],\n"
     "float64 height[s], first, together, float64 out[l, c, s or s + 1]): excess(scale * boundary) * height of each\n"
     "step, or `together`, which begins with 0, the sums of the first ones times 2 * scale"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_gains",
    .m_doc = "What the steps of number formats gain on histograms.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__gains(void)
{
    return PyModule_Create(&module);
}

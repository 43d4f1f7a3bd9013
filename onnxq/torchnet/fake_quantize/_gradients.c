/* Gradients of rounding with a scale that is learnt, in one pass, without holding the interpreter lock (compiled.py).
 *
 * Loops are plain; the compiler makes vectors of them, and on glibc the processor decides at load time how wide they are.
 * Sums do not depend on that: each has sixteen parts.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "vectors.h"

/* Whether a value lies inside the range, where its gradient goes through; NaN does. */
static inline int inside(float position, float low, float high)
{
    return !(position <= low || position >= high);
}

#define SUMMED 4096

/* The gradient of x, and the sum of g * (y - x inside the range). `position` is an expression of x[i]. */
#define LEARNT_RUN(position)                                                                                           \
    for (Py_ssize_t from = 0; from < size; from += SUMMED) {                                                           \
        Py_ssize_t end = from + SUMMED < size ? from + SUMMED : size, i = from;                                        \
        float sums[16] = {0};                                                                                          \
        for (; i + 16 <= end; i += 16)                                                                                 \
            for (int j = 0; j < 16; j++) {                                                                             \
                float v = x[i + j], g = gradient[i + j];                                                               \
                int in = inside(position, low, high);                                                                  \
                to_x[i + j] = in ? g : 0.0f;                                                                           \
                sums[j] += g * (y[i + j] - (in ? v : 0.0f));                                                           \
            }                                                                                                          \
        for (; i < end; i++) {                                                                                         \
            float v = x[i], g = gradient[i];                                                                           \
            int in = inside(position, low, high);                                                                      \
            to_x[i] = in ? g : 0.0f;                                                                                   \
            sums[0] += g * (y[i] - (in ? v : 0.0f));                                                                   \
        }                                                                                                              \
        for (int j = 0; j < 16; j++)                                                                                   \
            total += sums[j];                                                                                          \
    }

EVERY_WIDTH
static double learnt_run(const float *restrict x, const float *restrict y, const float *restrict gradient,
                         Py_ssize_t size, float low, float high, float *restrict to_x)
{
    double total = 0.0;
    LEARNT_RUN(v)
    return total;
}

EVERY_WIDTH
static double learnt_run_in_steps(const float *restrict x, const float *restrict y, const float *restrict gradient,
                                  Py_ssize_t size, float scale, float zero, float low, float high,
                                  float *restrict to_x)
{
    double total = 0.0;
    LEARNT_RUN(v / scale + zero)
    return total;
}

/* A row whose values have a scale each. */
EVERY_WIDTH
static void learnt_row(const float *restrict x, const float *restrict y, const float *restrict gradient,
                       Py_ssize_t size, const float *restrict scale, const int32_t *restrict zero, float low,
                       float high, float *restrict to_x, double *restrict sums)
{
    for (Py_ssize_t i = 0; i < size; i++) {
        float v = x[i], g = gradient[i];
        int in = inside(v / scale[i] + (float)zero[i], low, high);
        to_x[i] = in ? g : 0.0f;
        sums[i] += (double)(g * (y[i] - (in ? v : 0.0f)));
    }
}

static PyObject *learnt(PyObject *self, PyObject *args)
{
    Py_buffer x, y, gradient, scale, zero, to_x, sums;
    Py_ssize_t rows, length;
    int vector, in_steps;
    float low, high;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*w*w*nnppff", &x, &y, &gradient, &scale, &zero, &to_x, &sums, &rows, &length,
                          &vector, &in_steps, &low, &high))
        return NULL;
    Py_ssize_t bytes = rows * length * 4, scales = vector ? length : in_steps ? rows : 1;
    int fits = rows >= 0 && length >= 0 && x.len == bytes && y.len == bytes && gradient.len == bytes &&
               to_x.len == bytes && scale.len == scales * 4 && zero.len == scales * 4 &&
               sums.len == (vector ? length : rows) * 8;
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "sizes do not fit each other");
    else {
        Py_BEGIN_ALLOW_THREADS
        const float *s = scale.buf;
        const int32_t *z = zero.buf;
        double *found = sums.buf;
        for (Py_ssize_t row = 0; row < rows; row++) {
            Py_ssize_t at = row * length;
            const float *v = (const float *)x.buf + at, *w = (const float *)y.buf + at;
            const float *g = (const float *)gradient.buf + at;
            float *made = (float *)to_x.buf + at;
            if (vector)
                learnt_row(v, w, g, length, s, z, low, high, made, found);
            else if (in_steps)
                found[row] = learnt_run_in_steps(v, w, g, length, s[row], (float)z[row], low, high, made);
            else
                found[row] = learnt_run(v, w, g, length, low, high, made);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&x);
    PyBuffer_Release(&y);
    PyBuffer_Release(&gradient);
    PyBuffer_Release(&scale);
    PyBuffer_Release(&zero);
    PyBuffer_Release(&to_x);
    PyBuffer_Release(&sums);
    if (!fits)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"learnt", learnt, METH_VARARGS,
     "learnt(float32 x, y, gradient, scale, int32 zero point, float32 to_x, float64 sums, rows, length, vector,\n"
     "in_steps, low, high): the gradient where x lies between low and high, and for each row, or with `vector` for\n"
     "each place of all rows together, the sum of gradient * (y - x inside); `in_steps` compares x / scale + zero point"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_gradients",
    .m_doc = "Gradients of rounding with a scale that is learnt.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__gradients(void)
{
    return PyModule_Create(&module);
}

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

/* ---- roundings with an offset, and ranges that are learnt by signs (AutoRound): [blocks, size, inner] ------------- */

#define LANES 64

static inline float nearest(float x)
{
    return (x + 12582912.0f) - 12582912.0f;
}

/* The step that a weight is rounded to, one beyond the end of the format where it saturates. */
static inline float step_of(float w, float v, float scale, float low, float high)
{
    float place = w / scale + v;
    place = place < low - 1.0f ? low - 1.0f : place;
    place = place > high + 1.0f ? high + 1.0f : place;
    return nearest(place);
}

EVERY_WIDTH
static void offset_values(const float *restrict w, const float *restrict v, const float *restrict scale,
                          const float *restrict zero, Py_ssize_t size, Py_ssize_t stride, Py_ssize_t lanes, float qmin,
                          float qmax, float *restrict out)
{
    for (Py_ssize_t k = 0; k < size; k++, w += stride, v += stride, out += stride)
        for (Py_ssize_t j = 0; j < lanes; j++) {
            float low = qmin - zero[j], high = qmax - zero[j];
            float q = step_of(w[j], v[j], scale[j], low, high);
            q = q < low ? low : q;
            q = q > high ? high : q;
            out[j] = q * scale[j];
        }
}

EVERY_WIDTH
static void offset_run(const float *restrict w, const float *restrict v, float scale, float zero, Py_ssize_t size,
                       float qmin, float qmax, float *restrict out)
{
    float low = qmin - zero, high = qmax - zero;
    for (Py_ssize_t i = 0; i < size; i++) {
        float q = step_of(w[i], v[i], scale, low, high);
        q = q < low ? low : q;
        q = q > high ? high : q;
        out[i] = q * scale;
    }
}

/* One weight: its offset moves against the sign of its gradient, and what scale and zero point have of it. */
#define DESCEND(w, v, g, scale, low, high, to_scale, to_zero)                                                          \
    do {                                                                                                               \
        float q = step_of(w, v, scale, low, high);                                                                     \
        int in = (q >= low) & (q <= high);                                                                             \
        float end = q < low ? low : high;                                                                              \
        float down = (g) * (scale);                                                                                    \
        float sign = (float)((down > 0.0f) - (down < 0.0f));                                                           \
        float to = (v) - (in ? sign * rate : 0.0f);                                                                    \
        to = to < -0.5f ? -0.5f : to;                                                                                  \
        to = to > 0.5f ? 0.5f : to;                                                                                    \
        to_scale += (g) * (in ? q - (w) / (scale) : end);                                                              \
        to_zero += in ? 0.0f : -down;                                                                                  \
        v = to;                                                                                                        \
    } while (0)

EVERY_WIDTH
static void descend_values(const float *restrict w, float *restrict v, const float *restrict g,
                           const float *restrict scale, const float *restrict zero, Py_ssize_t size, Py_ssize_t stride,
                           Py_ssize_t lanes, float qmin, float qmax, float rate, float *restrict to_scale,
                           float *restrict to_zero)
{
    for (Py_ssize_t k = 0; k < size; k++, w += stride, v += stride, g += stride)
        for (Py_ssize_t j = 0; j < lanes; j++)
            DESCEND(w[j], v[j], g[j], scale[j], qmin - zero[j], qmax - zero[j], to_scale[j], to_zero[j]);
}

EVERY_WIDTH
static void descend_run(const float *restrict w, float *restrict v, const float *restrict g, float scale, float zero,
                        Py_ssize_t size, float qmin, float qmax, float rate, float *restrict to_scale,
                        float *restrict to_zero)
{
    float low = qmin - zero, high = qmax - zero, scales[16] = {0}, zeros[16] = {0};
    Py_ssize_t i = 0;
    for (; i + 16 <= size; i += 16)
        for (int j = 0; j < 16; j++)
            DESCEND(w[i + j], v[i + j], g[i + j], scale, low, high, scales[j], zeros[j]);
    for (; i < size; i++)
        DESCEND(w[i], v[i], g[i], scale, low, high, scales[0], zeros[0]);
    for (int j = 0; j < 16; j++) {
        *to_scale += scales[j];
        *to_zero += zeros[j];
    }
}

static PyObject *offset(PyObject *self, PyObject *args)
{
    Py_buffer w, v, scale, zero, out;
    Py_ssize_t blocks, size, inner;
    float qmin, qmax;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*nnnff", &w, &v, &scale, &zero, &out, &blocks, &size, &inner, &qmin, &qmax))
        return NULL;
    Py_ssize_t bytes = blocks * size * inner * 4, cells = blocks * inner * 4;
    int fits = blocks >= 0 && size >= 1 && inner >= 1 && w.len == bytes && v.len == bytes && out.len == bytes &&
               scale.len == cells && zero.len == cells;
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "sizes do not fit each other");
    else {
        Py_BEGIN_ALLOW_THREADS
        const float *from = w.buf, *moved = v.buf, *s = scale.buf, *z = zero.buf;
        float *made = out.buf;
        for (Py_ssize_t b = 0; b < blocks; b++) {
            Py_ssize_t at = b * size * inner;
            if (inner == 1)
                offset_run(from + at, moved + at, s[b], z[b], size, qmin, qmax, made + at);
            else
                for (Py_ssize_t j = 0; j < inner; j += LANES)
                    offset_values(from + at + j, moved + at + j, s + b * inner + j, z + b * inner + j, size, inner,
                                  inner - j < LANES ? inner - j : LANES, qmin, qmax, made + at + j);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&w);
    PyBuffer_Release(&v);
    PyBuffer_Release(&scale);
    PyBuffer_Release(&zero);
    PyBuffer_Release(&out);
    if (!fits)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *descend(PyObject *self, PyObject *args)
{
    Py_buffer w, v, g, scale, zero, to_scale, to_zero;
    Py_ssize_t blocks, size, inner;
    float qmin, qmax, rate;
    if (!PyArg_ParseTuple(args, "y*w*y*y*y*w*w*nnnfff", &w, &v, &g, &scale, &zero, &to_scale, &to_zero, &blocks, &size,
                          &inner, &qmin, &qmax, &rate))
        return NULL;
    Py_ssize_t bytes = blocks * size * inner * 4, cells = blocks * inner * 4;
    int fits = blocks >= 0 && size >= 1 && inner >= 1 && w.len == bytes && v.len == bytes && g.len == bytes &&
               scale.len == cells && zero.len == cells && to_scale.len == cells && to_zero.len == cells;
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "sizes do not fit each other");
    else {
        Py_BEGIN_ALLOW_THREADS
        const float *from = w.buf, *down = g.buf, *s = scale.buf, *z = zero.buf;
        float *moved = v.buf, *of_scale = to_scale.buf, *of_zero = to_zero.buf;
        for (Py_ssize_t b = 0; b < blocks; b++) {
            Py_ssize_t at = b * size * inner;
            if (inner == 1)
                descend_run(from + at, moved + at, down + at, s[b], z[b], size, qmin, qmax, rate, of_scale + b,
                            of_zero + b);
            else
                for (Py_ssize_t j = 0; j < inner; j += LANES) {
                    Py_ssize_t cell = b * inner + j;
                    descend_values(from + at + j, moved + at + j, down + at + j, s + cell, z + cell, size, inner,
                                   inner - j < LANES ? inner - j : LANES, qmin, qmax, rate, of_scale + cell,
                                   of_zero + cell);
                }
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&w);
    PyBuffer_Release(&v);
    PyBuffer_Release(&g);
    PyBuffer_Release(&scale);
    PyBuffer_Release(&zero);
    PyBuffer_Release(&to_scale);
    PyBuffer_Release(&to_zero);
    if (!fits)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"offset", offset, METH_VARARGS,
     "offset(float32 w[blocks, size, inner], v, scale[blocks, inner], zero_point, out, blocks, size, inner, qmin, qmax):\n"
     "(clip(round(w / scale + v) + zero_point, qmin, qmax) - zero_point) * scale"},
    {"descend", descend, METH_VARARGS,
     "descend(float32 w, v, gradient [blocks, size, inner], scale, zero_point, to_scale, to_zero [blocks, inner],\n"
     "blocks, size, inner, qmin, qmax, rate): v moves by `rate` against the sign of its gradient, within half a step;\n"
     "the gradients of scale and zero point, through what `offset` computes, are added to what is there"},
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
